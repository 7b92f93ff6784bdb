"""Which share of runs and categories gets above each level of success?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics.matrices import SCORES
from analysis.tables.labels import SCORE_LABELS, SPLIT_LABELS
from analysis.tables.results import SPLITS, Results, rows_where


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Columns are splits, rows are scores, one line with its band per algorithm."""
    band = "; band: interval" if max(results.seed_counts(goal_space)) > 1 else ""
    subtitle = f"{style.describe(results, goal_space)}; higher is better{band}"
    figure, axes = style.page(
        (len(SCORES), len(SPLITS)),
        (8.6, 6.4),
        "Performance profiles",
        subtitle,
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    frame = statistics["profiles"]
    frame = frame[frame["goal_space"] == goal_space]
    for row, score in enumerate(SCORES):
        for column, split in enumerate(SPLITS):
            chosen = frame[(frame["split"] == split) & (frame["score"] == score)]
            _panel(axes[row, column], results, goal_space, chosen)
            axes[row, column].set_xlabel(f"{SCORE_LABELS[score].lower()} above")
            axes[row, column].xaxis.set_tick_params(labelbottom=True)
        axes[row, 0].set_ylabel("fraction of seeds x categories")
    for column, split in enumerate(SPLITS):
        axes[0, column].set_title(SPLIT_LABELS[split])
    style.fraction_axis(axes.flat)
    for ax in axes.flat:
        ax.set_xlim(0, 1)
    style.footnote(figure, style.interval_text(results, goal_space))
    return figure


def _panel(ax: Axes, results: Results, goal_space: str, frame: pd.DataFrame) -> None:
    styles = style.algorithm_styles(results.algorithms)
    for algorithm in results.algorithms_in(goal_space):
        look = styles[algorithm]
        line = rows_where(frame, **algorithm._asdict()).sort_values("threshold")
        low, high = line["low"], line["high"]
        ax.fill_between(
            line["threshold"], low, high, step="post", color=look.color, alpha=0.13, lw=0
        )
        ax.step(
            line["threshold"],
            line["fraction"],
            where="post",
            color=look.color,
            linestyle=look.dash,
            linewidth=1.8,
            marker=look.marker,
            markersize=4,
            markevery=20,
            clip_on=False,
        )
