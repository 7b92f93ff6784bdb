"""How likely is a run of MAGELLAN to beat a run of each baseline?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.summaries import REFERENCE_SAMPLER, SCORES
from analysis.tables import SPLITS, Results

MARKERS = {"final": "o", "area": "s"}
OFFSETS = {"final": -0.14, "area": 0.14}


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per split; a row per baseline, a mark with its interval per score."""
    baselines = [name for name in results.samplers_in(goal_space) if name != REFERENCE_SAMPLER]
    subtitle = f"{style.describe(results, goal_space)}; averaged over feasible categories"
    figure, axes = style.page(
        1,
        len(SPLITS),
        (9.0, 1.9 + 0.55 * len(baselines)),
        "Probability that MAGELLAN beats each baseline",
        subtitle,
        sharex=True,
        sharey=True,
    )
    frame = statistics["improvement"]
    frame = frame[frame["goal_space"] == goal_space]
    for ax, split in zip(axes[0], SPLITS, strict=True):
        _panel(ax, results, frame[frame["split"] == split], baselines)
        ax.set_title(style.SPLIT_LABELS[split])
        ax.set_xlabel("P(MAGELLAN > baseline)")
    axes[0, 0].set_ylim(len(baselines) - 0.5, -0.5)
    labels = [style.sampler_label(results, goal_space, name) for name in baselines]
    axes[0, 0].set_yticks(np.arange(len(baselines)), labels, size=9)
    style.legend(
        figure,
        [
            Line2D(
                [],
                [],
                color=style.GREY,
                linestyle="none",
                marker=MARKERS[score],
                label=style.SCORE_LABELS[score],
            )
            for score in SCORES
        ],
    )
    style.footnote(figure, f"Ties count one half. {style.interval_text(results, goal_space)}")
    return figure


def _panel(ax: Axes, results: Results, frame: pd.DataFrame, baselines: list[str]) -> None:
    ax.axvline(0.5, color=style.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    for place, baseline in enumerate(baselines):
        look = style.sampler_style(baseline, results.samplers)
        for score in SCORES:
            found = frame[(frame["baseline"] == baseline) & (frame["score"] == score)].iloc[0]
            height = place + OFFSETS[score]
            style.interval_bar(ax, found["low"], found["high"], height, look.color)
            mark = MARKERS[score]
            ax.plot(found["probability"], height, color=look.color, marker=mark, markersize=6)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks(np.linspace(0.0, 1.0, 6))
    ax.grid(axis="y", visible=False)
