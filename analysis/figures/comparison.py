"""Comparison over all categories: aggregates, probability of improvement, profiles."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics.intervals import STUDENT_T, STUDENTISED
from analysis.statistics.matrices import SCORES
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.tables.grid import RUN_COLUMNS, SCORE_LABELS, SPLIT_LABELS, Algorithm
from analysis.tables.phases import practised_split
from analysis.tables.printing import p_equals
from analysis.tables.results import SPLITS, Results, rows_where

STATISTICS = {"mean": (-0.2, "full"), "iqm": (0.2, "none")}
"""Place within a row, and filling of the mark."""
METHODS = {STUDENTISED: style.STUDENTISED, STUDENT_T: "Student's t"}
"""Intervals of means, in a footnote's words."""
BAND = ("threshold", "low", "high")
MARKERS = {"final": "o", "area": "s"}
OFFSETS = {"final": -0.14, "area": 0.14}
TEST = (
    "p: permutation test of that difference (Welch's t), Holm-corrected over {tests} comparisons. "
    "It is no test of the squares: these count how often a run\nwins in a category and are not "
    "corrected, so an interval may exclude 0.5 where p is large, and the other way round."
)


def aggregates(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Columns are splits, rows of panels scores; an algorithm per line, the best one first."""
    frame = rows_where(statistics["aggregates"], goal_space=goal_space)
    runs = rows_where(statistics["scores"], goal_space=goal_space)
    where = {"score": PRIMARY_SCORE, "split": practised_split(results), "statistic": "mean"}
    means = rows_where(frame, **where).set_index(["sampler", "variant"])["value"]
    order = sorted(results.algorithms_in(goal_space), key=lambda algorithm: -means[algorithm])
    marks = {"mean": "o", "IQM": "o", "a run": "."}
    looks = [style.LineStyle(label, style.GREY, "-", marker) for label, marker in marks.items()]
    mean, iqm, run = (style.line_handle(look, line=False) for look in looks)
    iqm.set_fillstyle("none")
    run.set_alpha(0.4)
    used = set(frame.loc[frame["statistic"] == "mean", "method"])
    kinds = " or ".join(text for method, text in METHODS.items() if method in used)
    methods = f"IQM {style.PERCENTILE}, mean {kinds or style.STUDENTISED}"
    figure, axes = style.page(
        "Aggregate success",
        f"{style.describe(results, goal_space)}; over seeds and feasible categories together",
        [mean, iqm, run],
        [""] * len(SCORES),
        [""] * len(SPLITS),
        (8.6, 1.3 + len(SCORES) * (0.45 + 0.3 * len(order))),
        "success rate",
        style.interval_text(results, goal_space, methods),
    )
    styles, panels = style.styles_of(results), itertools.product(SCORES[::-1], SPLITS)
    for ax, (score, split) in zip(axes.flat, panels, strict=True):
        estimates = rows_where(frame, score=score, split=split)
        scores = rows_where(runs, split=split).groupby(list(RUN_COLUMNS))[score].mean()
        for y, algorithm in enumerate(order):
            color = styles[algorithm].color
            for statistic, (offset, fill) in STATISTICS.items():
                row = rows_where(estimates, statistic=statistic, **algorithm._asdict()).iloc[0]
                style.interval_bar(ax, row["low"], row["high"], y + offset, color)
                look = {"marker": "o", "fillstyle": fill, "markersize": 5}
                ax.plot(row["value"], y + offset, color=color, **look)
            dots, look = scores.loc[tuple(algorithm)], {"marker": ".", "alpha": 0.4}
            ax.plot(dots, np.full(len(dots), y), color=color, linestyle="none", ms=4, **look)
        ax.set_title(f"{SCORE_LABELS[score]}, {SPLIT_LABELS[split].lower()}")
        ax.grid(axis="y", visible=False)
    _bars_axis(axes[0, 0], results, goal_space, order, 0.02)
    return figure


def _bars_axis(
    ax: Axes, results: Results, goal_space: str, algorithms: Sequence[Algorithm], margin: float
) -> None:
    """Labels of algorithms up, the first one at the top, and rates from 0 to 1 along."""
    ax.set_xlim(-margin, 1 + margin)
    ax.set_xticks(np.linspace(0.0, 1.0, 6))
    ax.set_ylim(len(algorithms) - 0.5, -0.5)
    labels = [style.seeds_label(results, goal_space, algorithm) for algorithm in algorithms]
    ax.set_yticks(np.arange(len(algorithms)), labels)


def improvement(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """One panel per split; a row per baseline, a mark with interval per score."""
    reference = results.figure_labels[results.reference]
    baselines = [name for name in results.algorithms_in(goal_space) if name != results.reference]
    looks = [style.LineStyle(SCORE_LABELS[s], style.GREY, "-", MARKERS[s]) for s in SCORES]
    together = results.experiment["analysis"].get("family") == "question"
    test = TEST.format(tests=len(baselines) * (len(SPLITS) if together else 1))
    figure, axes = style.page(
        f"Probability that {reference} beats the others",
        f"{style.describe(results, goal_space)}; averaged over feasible categories",
        [style.line_handle(look, line=False) for look in looks],
        [""],
        [SPLIT_LABELS[split] for split in SPLITS],
        (9.0, 1.9 + 0.55 * len(baselines)),
        f"P({reference} > other)",
        f"{style.interval_text(results, goal_space)}\n{test}",
    )
    frame = rows_where(statistics["improvement"], goal_space=goal_space)
    comparison = rows_where(statistics["comparison"], goal_space=goal_space, score=PRIMARY_SCORE)
    styles, small = style.styles_of(results), {"size": 7.5, "color": style.GREY}
    header = "difference in mean\nsuccess over training"
    for ax, split in zip(axes[0], SPLITS, strict=True):
        ax.axvline(0.5, color=style.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
        ax.text(1.02, 1.0, header, va="bottom", transform=ax.transAxes, **small)
        for y, (sampler, variant) in enumerate(baselines):
            where = {"split": split, "baseline": sampler, "baseline_variant": variant}
            color = styles[Algorithm(sampler, variant)].color
            for score in SCORES:
                row, place = rows_where(frame, score=score, **where).iloc[0], y + OFFSETS[score]
                style.interval_bar(ax, row["low"], row["high"], place, color)
                ax.plot(row["probability"], place, color=color, marker=MARKERS[score], markersize=6)
            row = rows_where(comparison, **where).iloc[0]
            text = f"{row['difference']:+.2f}\n{p_equals(row['p_holm'])}"
            ax.text(1.02, y, text, va="center", transform=ax.get_yaxis_transform(), **small)
        ax.grid(axis="y", visible=False)
    _bars_axis(axes[0, 0], results, goal_space, baselines, 0.03)
    axes[0, 0].tick_params("y", labelsize=9)
    return figure


def profiles(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Columns are splits, rows are scores; one line with band per algorithm."""
    band = "; band: interval" if max(results.seed_counts(goal_space)) > 1 else ""
    figure, axes = style.page(
        "Performance profiles",
        f"{style.describe(results, goal_space)}; higher is better{band}",
        style.algorithm_handles(results, goal_space),
        ["fraction of seeds x categories"] * len(SCORES),
        [SPLIT_LABELS[split] for split in SPLITS],
        (8.6, 6.4),
        note=style.interval_text(results, goal_space),
    )
    frame = rows_where(statistics["profiles"], goal_space=goal_space)
    styles = style.styles_of(results)
    for row, score in enumerate(SCORES):
        for ax, split in zip(axes[row], SPLITS, strict=True):
            for algorithm in results.algorithms_in(goal_space):
                where = {"split": split, "score": score, **algorithm._asdict()}
                line = rows_where(frame, **where).sort_values("threshold")
                x, low, high, look = *(line[key] for key in BAND), styles[algorithm]
                ax.fill_between(x, low, high, step="post", color=look.color, alpha=0.13, lw=0)
                style.step_line(ax, x, line["fraction"], look, where="post", markevery=20)
            ax.set_xlabel(f"{SCORE_LABELS[score].lower()} above")
            ax.xaxis.set_tick_params(labelbottom=True)
    style.fraction_axis(axes.flat)
    axes[0, 0].set_xlim(0, 1)
    return figure
