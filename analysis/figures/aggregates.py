"""Which algorithm is best over all categories together, and how sure is that?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics.matrices import SCORES
from analysis.tables.labels import SCORE_LABELS, SPLIT_LABELS
from analysis.tables.results import SPLITS, Results, rows_where

TITLES = {"iqm": "IQM (higher is better)", "mean": "Mean (higher is better)"}
METHODS = f"IQM {style.PERCENTILE}, mean {style.STUDENTISED}"


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Columns are aggregates, rows are score and split; a mark with its interval per algorithm."""
    count = len(results.algorithms_in(goal_space))
    panels = list(itertools.product(SCORES, SPLITS))
    subtitle = f"{style.describe(results, goal_space)}; over seeds and feasible categories together"
    figure, axes = style.page(
        (len(panels), len(TITLES)),
        (8.0, 1.4 + len(panels) * (0.45 + 0.24 * count)),
        "Aggregate success",
        subtitle,
        style.algorithm_handles(results, goal_space, lines=False),
        sharex="col",
        sharey=True,
    )
    frame = rows_where(statistics["aggregates"], goal_space=goal_space)
    for row, (score, split) in enumerate(panels):
        for column, statistic in enumerate(TITLES):
            chosen = rows_where(frame, score=score, split=split, statistic=statistic)
            _panel(axes[row, column], results, goal_space, chosen)
        label = f"{SCORE_LABELS[score]}\n{SPLIT_LABELS[split].lower()}"
        axes[row, 0].set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8)
    for column, title in enumerate(TITLES.values()):
        axes[0, column].set_title(title)
        axes[-1, column].set_xlabel("success rate")
    for ax in axes.flat:
        ax.set_xlim(-0.02, 1.02)
        ax.set_xticks(np.linspace(0.0, 1.0, 6))
    axes[0, 0].set_ylim(count - 0.5, -0.5)
    axes[0, 0].set_yticks([])
    style.footnote(figure, style.interval_text(results, goal_space, METHODS))
    return figure


def _panel(ax: Axes, results: Results, goal_space: str, estimates: pd.DataFrame) -> None:
    styles = style.algorithm_styles(results.algorithms)
    for place, algorithm in enumerate(results.algorithms_in(goal_space)):
        look, found = styles[algorithm], rows_where(estimates, **algorithm._asdict()).iloc[0]
        style.interval_bar(ax, found["low"], found["high"], place, look.color)
        ax.plot(found["value"], place, color=look.color, marker=look.marker, markersize=6)
    ax.grid(axis="y", visible=False)
