"""How much training does each sampler need to get good over all categories together?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.tables.labels import SPLIT_LABELS
from analysis.tables.results import SPLITS, Results, rows_where


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per split: IQM over training with its interval, one line per algorithm."""
    subtitle = f"{style.describe(results, goal_space)}; IQM over seeds x feasible categories"
    figure, axes = style.page(
        (1, len(SPLITS)),
        (9.0, 4.3),
        "Sample efficiency",
        subtitle,
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    frame = statistics["sample_efficiency"]
    frame = frame[frame["goal_space"] == goal_space]
    for ax, split in zip(axes[0], SPLITS, strict=True):
        _panel(ax, results, goal_space, frame[frame["split"] == split])
        ax.set_title(SPLIT_LABELS[split])
        ax.set_xlabel(results.length_label)
    axes[0, 0].set_ylabel("IQM of success rate")
    style.training_axis(axes.flat, frame[results.at].max())
    style.fraction_axis(axes.flat)
    style.footnote(figure, f"{style.interval_text(results, goal_space)} No smoothing.")
    return figure


def _panel(ax: Axes, results: Results, goal_space: str, frame: pd.DataFrame) -> None:
    styles = style.algorithm_styles(results.algorithms)
    for algorithm in results.algorithms_in(goal_space):
        look = styles[algorithm]
        line = rows_where(frame, **algorithm._asdict()).sort_values(results.at)
        ax.fill_between(
            line[results.at], line["low"], line["high"], color=look.color, alpha=0.15, lw=0
        )
        ax.plot(
            line[results.at],
            line["iqm"],
            color=look.color,
            linestyle=look.dash,
            linewidth=1.8,
            marker=look.marker,
            markersize=4,
            markevery=style.marker_spacing(len(line)),
            clip_on=False,
        )
