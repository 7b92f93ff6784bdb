"""Success over training: per category and phase, over all categories, and time to mastery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.statistics.intervals import Matrix
from analysis.statistics.mastery import MASTERED, kaplan_meier, times_of
from analysis.statistics.matrices import (
    evaluated_categories,
    evaluation_points,
    settings,
    success_curves,
)
from analysis.tables.grid import UNIT_LABELS, Algorithm
from analysis.tables.labels import SPLIT_LABELS
from analysis.tables.phases import OnePhase, each_phase
from analysis.tables.results import SPLITS, Results, rows_where

MARKS = "thick: mean over seeds, thin: each seed"
WIDEST, NARROWEST = 3.2, 1.4
SWITCH = style.LineStyle("goals replaced", style.BLACK, (0, (1.5, 1.5)), "")
PAPER = style.LineStyle("mastered in the paper", style.GREY, (0, (1.5, 1.5)), "")
SHARED = style.LineStyle("phase that all share", style.GREY, "-", "")


def _category_page(
    results: Results,
    goal_space: str,
    texts: tuple[str, str],
    handles: Sequence[Artist],
    xlabel: str,
    last: float,
    ylabel: str = "success rate",
) -> tuple[Figure, style.AxesGrid]:
    """A page with a row for each split and a column for each feasible category.

    Args:
        texts: title, and end of the subtitle.
        handles: entries of the legend.
        xlabel, ylabel: labels of the axes.
        last: end of the x axis.
    """
    feasible = results.categories.feasible
    figure, axes = style.page(
        (len(SPLITS), len(feasible)),
        (max(9.6, 2.4 * len(feasible)), 5.4),
        texts[0],
        f"{style.describe(results, goal_space)}; {texts[1]}",
        handles,
        sharex=True,
        sharey=True,
    )
    for row, split in enumerate(SPLITS):
        axes[row, 0].set_ylabel(f"{SPLIT_LABELS[split]}\n{ylabel}")
    for column, category in enumerate(feasible):
        axes[0, column].set_title(results.categories.named(category).words)
        axes[-1, column].set_xlabel(xlabel)
    style.training_axis(axes.flat, last)
    style.fraction_axis(axes.flat)
    return figure, axes


# --- success per category -------------------------------------------------------------------------


def success_by_category(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """Rows are splits, columns are categories; thick lines: algorithms, thin lines: runs."""
    success = results.table("evaluation", goal_space=goal_space)
    marks = settings(results).paper_mastery
    figure, axes = _category_page(
        results,
        goal_space,
        ("Success per category over training", style.seed_lines(results, goal_space, MARKS)),
        [
            *style.algorithm_handles(results, goal_space),
            *([style.line_handle(PAPER, linewidth=1.2)] if marks else []),
        ],
        results.length_label,
        success[results.unit_column].max(),
    )
    panels = curves(results, goal_space)
    for row, split in enumerate(SPLITS):
        for ax, category in zip(axes[row], results.categories.feasible, strict=True):
            lines = panels.get((split, category), [])
            if not lines:
                text = "no goals of this category\nin the goal space"
                look = {"size": 8, "color": style.GREY, "ha": "center", "va": "center"}
                ax.text(0.5, 0.5, text, transform=ax.transAxes, **look)
            _lines(ax, results, lines)
    for ax, category in zip(axes[0], results.categories.feasible, strict=True):
        if category in marks:
            ax.axvline(marks[category], color=PAPER.color, linestyle=PAPER.dash, linewidth=1.2)
    style.footnote(figure, _footnote(success["n"]))
    return figure


def _footnote(counts: pd.Series) -> str:
    goals = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}-{counts.max()}"
    noise = 0.5 / counts.min() ** 0.5
    return (
        f"Each point: {goals} episodes per seed (standard error up to {noise:.2f}). No smoothing. "
        "Intervals of the means are in statistics/success.csv."
    )


# --- all phases -----------------------------------------------------------------------------------


class Curve(NamedTuple):
    """Success of an algorithm in one phase, split and category.

    Attributes:
        points: training length at each evaluation, from the beginning of the run, (points,).
        runs: success of each run, (seeds, points).
    """

    algorithm: Algorithm
    points: Matrix
    runs: Matrix


Curves = dict[tuple[str, str], list[Curve]]
"""Curves of the algorithms, by split and category."""


def curves(results: Results, goal_space: str, begins: int = 0) -> Curves:
    """Success in a phase that begins at this training length; empty without runs of it."""
    if goal_space not in results.goal_spaces:
        return {}
    points = evaluation_points(results, goal_space) + begins
    panels: Curves = {}
    for split in SPLITS:
        for algorithm in results.algorithms_in(goal_space):
            cube = success_curves(results, algorithm, goal_space, split)
            for column, category in enumerate(evaluated_categories(results, goal_space, split)):
                curve = Curve(algorithm, points, cube[:, column])
                panels.setdefault((split, category), []).append(curve)
    return panels


def is_shared(phase: OnePhase, panels: Curves) -> bool:
    """Whether several algorithms share the same runs in a phase, from which they start.

    Equal success is not enough: it is 0 wherever nothing is learnt.
    """
    return phase.named and all(
        len(lines) > 1 and all(np.array_equal(lines[0].runs, line.runs) for line in lines[1:])
        for lines in panels.values()
    )


def phases(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories; one line per algorithm and phase."""
    drawn = [
        (phase, curves(phase.results, goal_space, phase.begins)) for phase in each_phase(results)
    ]
    drawn = [(phase, panels) for phase, panels in drawn if panels]
    shared = [is_shared(phase, panels) for phase, panels in drawn]
    figure, axes = _category_page(
        results,
        goal_space,
        ("Success per category over all phases", style.seed_lines(results, goal_space, MARKS)),
        [
            *style.algorithm_handles(results, goal_space),
            *([style.line_handle(SHARED)] if any(shared) else []),
            style.line_handle(SWITCH, linewidth=1.2),
            Patch(facecolor=style.SHADE, label="goals practised"),
        ],
        UNIT_LABELS[results.unit],
        max(line.points[-1] for _, panels in drawn for lines in panels.values() for line in lines),
    )
    for (phase, panels), is_one in zip(drawn, shared, strict=True):
        for row, split in enumerate(SPLITS):
            for column, category in enumerate(results.categories.feasible):
                lines = panels.get((split, category), [])
                _mark_phase(axes[row, column], phase, split, lines)
                _lines(axes[row, column], results, lines, is_one)
    style.footnote(
        figure,
        "Where goals are replaced, success is measured twice: on the goals before and after. "
        "No smoothing. Intervals are in statistics/phases.csv.",
    )
    return figure


def _mark_phase(ax: Axes, phase: OnePhase, split: str, lines: Sequence[Curve]) -> None:
    """Shade a phase if its split is practised, and mark its beginning if goals are replaced."""
    if phase.goals.split == split and lines:
        ax.axvspan(phase.begins, lines[0].points[-1], color=style.SHADE, lw=0, zorder=0)
    if phase.replaces:
        ax.axvline(phase.begins, color=SWITCH.color, linestyle=SWITCH.dash, linewidth=1.2)


def _lines(ax: Axes, results: Results, lines: Sequence[Curve], shared: bool = False) -> None:
    """Draw the curves of one panel and phase; a shared phase is one line."""
    styles = style.algorithm_styles(results.algorithms)
    for curve in lines[:1] if shared else lines:
        look = SHARED if shared else styles[curve.algorithm]
        style.run_lines(ax, curve.points, curve.runs, look.color)
        style.mean_line(ax, curve.points, curve.runs.mean(axis=0), look)


# --- all categories together ----------------------------------------------------------------------


def sample_efficiency(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """One panel per split: IQM over training with interval, one line per algorithm."""
    figure, axes = style.page(
        (1, len(SPLITS)),
        (9.0, 4.3),
        "Sample efficiency",
        f"{style.describe(results, goal_space)}; IQM over seeds x feasible categories",
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    styles = style.algorithm_styles(results.algorithms)
    frame = rows_where(statistics["sample_efficiency"], goal_space=goal_space)
    frame = frame.sort_values(results.unit_column, kind="stable")
    for ax, split in zip(axes[0], SPLITS, strict=True):
        for algorithm in results.algorithms_in(goal_space):
            line = rows_where(frame, split=split, **algorithm._asdict())
            points, look = line[results.unit_column], styles[algorithm]
            ax.fill_between(points, line["low"], line["high"], color=look.color, alpha=0.15, lw=0)
            style.mean_line(ax, points, line["iqm"], look, zorder=2)
        ax.set_title(SPLIT_LABELS[split])
        ax.set_xlabel(results.length_label)
    axes[0, 0].set_ylabel("IQM of success rate")
    style.training_axis(axes.flat, frame[results.unit_column].max())
    style.fraction_axis(axes.flat)
    style.footnote(figure, f"{style.interval_text(results, goal_space)} No smoothing.")
    return figure


# --- time to mastery ------------------------------------------------------------------------------


def mastery(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories; one step line per algorithm."""
    last = float(evaluation_points(results, goal_space)[-1])
    figure, axes = _category_page(
        results,
        goal_space,
        ("Time to mastery", "share of runs that have mastered a category"),
        style.algorithm_handles(results, goal_space),
        results.length_label,
        last,
        "share of runs",
    )
    styles = style.algorithm_styles(results.algorithms)
    algorithms = results.algorithms_in(goal_space)
    # Wide lines first, so that no line hides another.
    widths = np.linspace(WIDEST, NARROWEST, len(algorithms))
    for row, split in enumerate(SPLITS):
        for algorithm, width in zip(algorithms, map(float, widths), strict=True):
            times = times_of(results, algorithm, goal_space, split)
            for ax, category in zip(axes[row], results.categories.feasible, strict=True):
                if category in times:
                    steps, look = kaplan_meier(*times[category]), styles[algorithm]
                    x = np.append(steps.times, last)
                    shares = 1.0 - np.append(steps.shares, steps.shares[-1])
                    options = {"linewidth": width, "markersize": width + 2.6, "markevery": None}
                    style.step_line(ax, x, shares, look, where="post", **options)
    style.footnote(
        figure,
        f"Mastered: success above {MASTERED} at two evaluations in a row, counted at the "
        "first of them. Kaplan-Meier estimate. No intervals, no smoothing.",
    )
    return figure
