"""Shares of training episodes by category: of all episodes, and without exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics.practice_shares import exploited_window_shares, window_shares
from analysis.tables.grid import Algorithm, exploiting
from analysis.tables.results import Results

TICKS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
SharesOf = Callable[[Results, Algorithm, str], tuple[np.ndarray, np.ndarray]]


def practice(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per category: its share of each algorithm's episodes in each window."""
    texts = ("What each sampler practised", "share of episodes", "")
    return _draw(results, goal_space, results.algorithms_in(goal_space), window_shares, texts)


def exploitation(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """The same for algorithms that estimate competence, without exploration.

    Gaven et al. 2025, Figure 19.
    """
    texts = (
        "What each sampler chose to practise",
        "share without exploration",
        "Exploration: its average is taken off.",
    )
    algorithms = exploiting(results.algorithms_in(goal_space))
    return _draw(results, goal_space, algorithms, exploited_window_shares, texts)


def _draw(
    results: Results,
    goal_space: str,
    algorithms: Sequence[Algorithm],
    shares_of: SharesOf,
    texts: tuple[str, str, str],
) -> Figure:
    """One panel per category: share of episodes in each window, a step line per algorithm.

    Args:
        results: combined tables.
        goal_space: goal space of the runs.
        algorithms: algorithms to draw.
        shares_of: returns window ends, in the unit of the experiment, and shares
            (categories, windows).
        texts: title, subtitle, and addition to the footnote.
    """
    title, subtitle, note = texts
    categories = results.categories
    styles = style.algorithm_styles(results.algorithms)
    figure, axes = style.page(
        (1, len(categories)),
        (max(9.6, 2.15 * len(categories)), 4.0),
        title,
        f"{style.describe(results, goal_space, algorithms)}; {subtitle}, all seeds together",
        style.algorithm_handles(results, goal_space, algorithms=algorithms),
        sharex=True,
        sharey=True,
    )
    last = 0
    for algorithm in algorithms:
        ends, shares = shares_of(results, algorithm, goal_space)
        last = max(last, int(ends[-1]))
        for ax, share in zip(axes[0], shares, strict=True):
            # Steps, not slopes: a share belongs to its whole window.
            x, y = np.concatenate([[0], ends]), np.concatenate([share[:1], share])
            every = (1, style.marker_spacing(len(ends)))
            options = {"linewidth": 1.6, "markersize": 3.5, "markevery": every}
            style.step_line(ax, x, y, styles[algorithm], where="pre", **options)
    for ax, category in zip(axes[0], categories, strict=True):
        ax.set_title(category.words)
        ax.set_xlabel(results.length_label)
    _share_axis(axes[0, 0])
    style.training_axis(axes.flat, last)
    style.footnote(figure, f"Up: square-root scale, so that rare categories show. {note}".strip())
    return figure


def _share_axis(ax: Axes) -> None:
    """Shares from 0 to 1 on a square-root scale."""
    ax.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0.0)), np.square))
    ax.set_ylim(0.0, 1.0)
    ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.set_ylabel("share of episodes")
