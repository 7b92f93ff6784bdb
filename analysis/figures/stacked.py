"""Shares of categories over training, stacked, in a panel for each algorithm."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.grid import Algorithm
from analysis.results import Results
from analysis.worlds import category_colors

PER_ROW = 4
TITLE_LETTERS = 26
SharesOf = Callable[[Results, Algorithm, str], tuple[np.ndarray, np.ndarray]]


def draw(
    results: Results,
    goal_space: str,
    algorithms: Sequence[Algorithm],
    shares_of: SharesOf,
    words: tuple[str, str, str],
) -> Figure:
    """One panel per algorithm: stacked shares of the categories in each window.

    Args:
        results: whose runs they are.
        goal_space: of the runs.
        algorithms: those that are shown.
        shares_of: ends of the windows, and shares (categories, windows).
        words: title, what the shares are, and more for the footnote.
    """
    title, subtitle, note = words
    columns = min(PER_ROW, len(algorithms))
    rows = -(-len(algorithms) // columns)
    figure, axes = style.page(
        (rows, columns),
        (max(8.0, 2.4 * columns), 1.35 + 2.3 * rows),
        title,
        f"{style.describe(results, goal_space, algorithms)}; {subtitle}, all seeds together",
        _handles(results),
        sharex=True,
        sharey=True,
    )
    for ax in axes.flat[len(algorithms) :]:
        ax.set_visible(False)
    shown = axes.flat[: len(algorithms)]
    last = 0
    for ax, algorithm in zip(shown, algorithms, strict=True):
        ends, shares = shares_of(results, algorithm, goal_space)
        _panel(ax, ends, shares, category_colors(results.categories))
        ax.set_title(_title(style.seeds_label(results, goal_space, algorithm)))
        ax.set_xlabel(f"training episodes{results.counted_from}")
        ax.xaxis.set_tick_params(labelbottom=True)  # the last row may have empty places
        last = max(last, int(ends[-1]))
    style.training_axis(shown, last)
    for ax in axes[:, 0]:
        ax.set_ylabel("share of episodes")
    window = int(ends[0])
    style.footnote(figure, _note(results, window, note))
    return figure


def _note(results: Results, window: int, more: str) -> str:
    words = f"Windows of {window:,} episodes; stacked in the order of the legend."
    if results.unit != "episodes":
        words = f"{words} Each panel ends where its first run does."
    return f"{words} {more}".strip()


def _title(label: str) -> str:
    """A label over as many lines as the width of a panel asks for."""
    return "\n".join(textwrap.wrap(label, TITLE_LETTERS, break_long_words=True))


def _handles(results: Results) -> list[Patch]:
    colors = category_colors(results.categories)
    return [Patch(facecolor=colors[each.name], label=each.words) for each in results.categories]


def _panel(ax: Axes, ends: np.ndarray, shares: np.ndarray, colors: Mapping[str, str]) -> None:
    """Steps, not slopes: a share belongs to its whole window."""
    edges = np.concatenate([[0], ends])
    tops = np.cumsum(shares, axis=0)
    bottom = np.zeros_like(tops[0])
    for color, top in zip(colors.values(), tops, strict=True):
        ax.fill_between(
            edges,
            np.append(bottom, bottom[-1]),
            np.append(top, top[-1]),
            step="post",
            color=color,
            linewidth=0,
        )
        ax.step(edges, np.append(top, top[-1]), where="post", color="white", linewidth=0.8)
        bottom = top
    ax.grid(False)
    ax.set_ylim(0, 1)
