"""How likely is a run of the reference to beat a run of each other algorithm?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.statistics.matrices import SCORES
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.tables.grid import Algorithm
from analysis.tables.labels import SCORE_LABELS, SPLIT_LABELS, figure_label
from analysis.tables.results import SPLITS, Results, rows_where

MARKERS = {"final": "o", "area": "s"}
TEST = (
    "p: permutation test of that difference (Welch's t), Holm-corrected over {tests} comparisons. "
    "It is no test of the squares: these count how often a run\nwins in a category and are not "
    "corrected, so an interval may exclude 0.5 where p is large, and the other way round."
)
OFFSETS = {"final": -0.14, "area": 0.14}


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per split; a row per other algorithm, a mark with its interval per score."""
    reference = figure_label(results.reference, results.algorithms)
    others = [each for each in results.algorithms_in(goal_space) if each != results.reference]
    subtitle = f"{style.describe(results, goal_space)}; averaged over feasible categories"
    figure, axes = style.page(
        (1, len(SPLITS)),
        (9.0, 1.9 + 0.55 * len(others)),
        f"Probability that {reference} beats the others",
        subtitle,
        _handles(),
        footer_rows=3,
        sharex=True,
        sharey=True,
    )
    frame = rows_where(statistics["improvement"], goal_space=goal_space)
    compared = rows_where(statistics["comparison"], goal_space=goal_space, score=PRIMARY_SCORE)
    for ax, split in zip(axes[0], SPLITS, strict=True):
        _panel(ax, results, rows_where(frame, split=split), others)
        _differences(ax, rows_where(compared, split=split), others)
        ax.set_title(SPLIT_LABELS[split])
        ax.set_xlabel(f"P({reference} > other)")
    axes[0, 0].set_ylim(len(others) - 0.5, -0.5)
    labels = [style.seeds_label(results, goal_space, algorithm) for algorithm in others]
    axes[0, 0].set_yticks(np.arange(len(others)), labels, size=9)
    together = results.experiment["analysis"].get("family") == "question"
    tests = len(others) * (len(SPLITS) if together else 1)
    intervals = style.interval_text(results, goal_space)
    style.footnote(figure, f"{intervals}\n{TEST.format(tests=tests)}")
    return figure


def _handles() -> list[Line2D]:
    labels = SCORE_LABELS
    looks = [style.LineStyle(labels[score], style.GREY, "-", MARKERS[score]) for score in SCORES]
    return [style.line_handle(look, line=False) for look in looks]


def _panel(ax: Axes, results: Results, frame: pd.DataFrame, others: Sequence[Algorithm]) -> None:
    ax.axvline(0.5, color=style.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    styles = style.algorithm_styles(results.algorithms)
    for place, other in enumerate(others):
        color = styles[other].color
        mine = rows_where(frame, baseline=other.sampler, baseline_variant=other.variant)
        for score in SCORES:
            found = rows_where(mine, score=score).iloc[0]
            height = place + OFFSETS[score]
            style.interval_bar(ax, found["low"], found["high"], height, color)
            mark = MARKERS[score]
            ax.plot(found["probability"], height, color=color, marker=mark, markersize=6)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks(np.linspace(0.0, 1.0, 6))
    ax.grid(axis="y", visible=False)


def _differences(ax: Axes, compared: pd.DataFrame, others: Sequence[Algorithm]) -> None:
    """Right of the panel: difference of mean success over training, and its p value."""
    small = {"size": 7.5, "color": style.GREY}
    ax.text(
        1.02,
        1.0,
        "difference in mean\nsuccess over training",
        va="bottom",
        transform=ax.transAxes,
        **small,
    )
    for place, other in enumerate(others):
        where = {"baseline": other.sampler, "baseline_variant": other.variant}
        found = rows_where(compared, **where).iloc[0]
        words = f"{found['difference']:+.2f}\np = {found['p_holm']:.2g}"
        across = ax.get_yaxis_transform()
        ax.text(1.02, place, words, va="center", transform=across, **small)
