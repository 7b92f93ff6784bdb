"""Does MAGELLAN know what its agent can do, also on goals that it never trains on?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import summaries
from analysis.figures import style
from analysis.tables import SPLITS, Results
from magellan.littlezoo.goals import CATEGORIES

SAMPLER = "magellan"
OBSERVED = "#000000"
PREDICTED = style.SAMPLER_STYLES[SAMPLER].color
DASHES: dict[str, Any] = {"train": "-", "unseen": (0, (4, 1.5))}


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Columns are categories; rows: training goals, unseen goals, learning progress."""
    marks = "lines: mean over seeds, thin: the prediction of each seed"
    subtitle = (
        f"{style.describe(results, goal_space, SAMPLER)}; "
        f"{style.seed_lines(results, goal_space, marks, SAMPLER)}"
    )
    figure, axes = style.page(
        3,
        len(CATEGORIES),
        (10.0, 6.8),
        "MAGELLAN's predicted competence against observed success",
        subtitle,
        sharex=True,
        sharey="row",
    )
    frame = summaries.predictions(results)
    frame = frame[(frame["sampler"] == SAMPLER) & (frame["goal_space"] == goal_space)]
    for column, category in enumerate(CATEGORIES):
        chosen = frame[frame["category"] == category]
        for row, split in enumerate(SPLITS):
            _competence(axes[row, column], chosen[chosen["split"] == split], split)
        _learning_progress(axes[2, column], chosen)
        axes[0, column].set_title(style.CATEGORY_LABELS[category])
        axes[2, column].set_xlabel("training episodes")
    for row, split in enumerate(SPLITS):
        axes[row, 0].set_ylabel(f"{style.SPLIT_LABELS[split]}\nsuccess rate")
    axes[2, 0].set_ylabel("Estimated learning\nprogress")
    style.episode_axis(axes.flat, frame["episode"].max())
    style.fraction_axis(axes[:2].flat)
    axes[2, 0].set_ylim(bottom=0)
    style.legend(figure, _handles())
    style.footnote(
        figure,
        "Predictions are means over the evaluated goals. Impossible goals are not played: "
        "success 0 by construction. No intervals, no smoothing.",
    )
    return figure


def _competence(ax: Axes, frame: pd.DataFrame, split: str) -> None:
    for _, run in frame.groupby("seed"):
        ax.plot(run["episode"], run["competence"], color=PREDICTED, lw=0.7, alpha=0.5)
    means = frame.groupby("episode")[["competence", "success"]].mean()
    spacing = style.marker_spacing(len(means))
    ax.plot(
        means.index,
        means["success"],
        color=OBSERVED,
        linestyle=(0, (1, 1.3)),
        marker="o",
        markersize=3.5,
        markerfacecolor="white",
        markevery=spacing,
        linewidth=1.5,
        clip_on=False,
    )
    ax.plot(
        means.index,
        means["competence"],
        color=PREDICTED,
        linestyle=DASHES[split],
        linewidth=1.8,
    )


def _learning_progress(ax: Axes, frame: pd.DataFrame) -> None:
    for split in SPLITS:
        means = frame[frame["split"] == split].groupby("episode")["learning_progress"].mean()
        ax.plot(means.index, means, color=PREDICTED, linestyle=DASHES[split], linewidth=1.6)


def _handles() -> list[Line2D]:
    observed = Line2D(
        [],
        [],
        color=OBSERVED,
        linestyle=(0, (1, 1.3)),
        marker="o",
        markersize=4,
        markerfacecolor="white",
        label="observed success",
    )
    predicted = [
        Line2D(
            [],
            [],
            color=PREDICTED,
            linestyle=DASHES[split],
            linewidth=1.8,
            label=f"predicted, {style.SPLIT_LABELS[split].lower()}",
        )
        for split in SPLITS
    ]
    return [observed, *predicted]
