"""Which goals did each sampler hand out over training?"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.grid import Algorithm
from analysis.results import Results
from analysis.worlds import category_colors

PER_ROW = 4
TITLE_LETTERS = 26


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per algorithm: stacked shares of the categories in each window."""
    algorithms = results.algorithms_in(goal_space)
    columns = min(PER_ROW, len(algorithms))
    rows = -(-len(algorithms) // columns)
    subtitle = f"{style.describe(results, goal_space)}; share of episodes, all seeds together"
    figure, axes = style.page(
        (rows, columns),
        (max(8.0, 2.4 * columns), 1.35 + 2.3 * rows),
        "What each sampler practised",
        subtitle,
        _handles(results),
        sharex=True,
        sharey=True,
    )
    for ax in axes.flat[len(algorithms) :]:
        ax.set_visible(False)
    shown = axes.flat[: len(algorithms)]
    last = 0
    for ax, algorithm in zip(shown, algorithms, strict=True):
        ends, shares = window_shares(results, algorithm, goal_space)
        _panel(ax, ends, shares, category_colors(results.categories))
        ax.set_title(_title(style.seeds_label(results, goal_space, algorithm)))
        ax.set_xlabel(f"training episodes{results.counted_from}")
        ax.xaxis.set_tick_params(labelbottom=True)  # the last row may have empty places
        last = max(last, int(ends[-1]))
    style.training_axis(shown, last)
    for ax in axes[:, 0]:
        ax.set_ylabel("share of episodes")
    window = int(ends[0])
    style.footnote(figure, _note(results, window))
    return figure


def _note(results: Results, window: int) -> str:
    words = f"Windows of {window:,} episodes; stacked in the order of the legend."
    if results.unit == "episodes":
        return words
    return f"{words} Each panel ends where its first run does."


def _title(label: str) -> str:
    """A label over as many lines as the width of a panel asks for."""
    return "\n".join(textwrap.wrap(label, TITLE_LETTERS, break_long_words=True))


def _handles(results: Results) -> list[Patch]:
    colors = category_colors(results.categories)
    return [Patch(facecolor=colors[each.name], label=each.words) for each in results.categories]


def window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the categories in each window, all seeds together.

    Returns:
        Window ends in episodes, (windows,), and shares in the order of the world's,
        (categories, windows); NaN in a window without episodes. Runs whose budget is no number of
        episodes end in the middle of a window, each in another place: only what all of them have.
    """
    frame = results.table("practice", **algorithm._asdict(), goal_space=goal_space)
    if results.unit != "episodes":
        window = results.manifest["runs"][0]["config"]["budget"]["practice_window"]
        frame = frame.assign(episode=(-(-frame["episode"] // window)).clip(lower=1) * window)
        frame = frame[frame["episode"] <= frame.groupby("seed")["episode"].max().min()]
    counts = frame.pivot_table(index="category", columns="episode", values="n", aggfunc="sum")
    counts = counts.reindex(index=list(results.categories.names), fill_value=0).fillna(0)
    total = counts.sum(axis=0).to_numpy(dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return counts.columns.to_numpy(), counts.to_numpy(dtype=np.float64) / total


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
