"""How many runs master each category, and when?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics import survival
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import evaluation_points
from analysis.statistics.survival import Times
from analysis.tables.labels import SPLIT_LABELS
from analysis.tables.results import SPLITS, Results

WIDEST, NARROWEST = 3.2, 1.4


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories; one line of steps per algorithm."""
    subtitle = f"{style.describe(results, goal_space)}; share of runs that have mastered a category"
    feasible = results.categories.feasible
    figure, axes = style.page(
        (len(SPLITS), len(feasible)),
        (max(9.6, 2.4 * len(feasible)), 5.4),
        "Time to mastery",
        subtitle,
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    last = float(evaluation_points(results, goal_space)[-1])
    for row, split in enumerate(SPLITS):
        _row(axes[row], results, goal_space, split, last)
        axes[row, 0].set_ylabel(f"{SPLIT_LABELS[split]}\nshare of runs")
    for column, category in enumerate(feasible):
        axes[0, column].set_title(results.categories.named(category).words)
        axes[-1, column].set_xlabel(results.length_label)
    style.training_axis(axes.flat, last)
    style.fraction_axis(axes.flat)
    style.footnote(
        figure,
        f"Mastered: success above {survival.MASTERED} at two evaluations in a row, counted at the "
        "first of them. Kaplan-Meier estimate. No intervals, no smoothing.",
    )
    return figure


def _row(axes: np.ndarray, results: Results, goal_space: str, split: str, last: float) -> None:
    """The panels of one split, (categories,): wide lines first, so that none hides another."""
    styles = style.algorithm_styles(results.algorithms)
    algorithms = results.algorithms_in(goal_space)
    widths = np.linspace(WIDEST, NARROWEST, len(algorithms))
    for algorithm, width in zip(algorithms, widths, strict=True):
        found = times_of(results, algorithm, goal_space, split)
        for ax, category in zip(axes, results.categories.feasible, strict=True):
            if category in found:
                _steps(ax, found[category], last, styles[algorithm], float(width))


def _steps(ax: Axes, times: Times, last: float, look: style.LineStyle, width: float) -> None:
    steps = survival.kaplan_meier(*times)
    ax.step(
        np.append(steps.times, last),
        1.0 - np.append(steps.shares, steps.shares[-1]),
        where="post",
        color=look.color,
        linestyle=look.dash,
        linewidth=width,
        marker=look.marker,
        markersize=width + 2.6,
        clip_on=False,
    )
