"""Over training: success per category and phase, over all categories; time to mastery; practice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.statistics import matrices
from analysis.statistics.intervals import Matrix
from analysis.statistics.mastery import MASTERED, kaplan_meier, times_of
from analysis.statistics.practice_shares import exploited_window_shares, window_shares
from analysis.tables.grid import SPLIT_LABELS, UNIT_LABELS, Algorithm, exploiting
from analysis.tables.phases import OnePhase, each_phase
from analysis.tables.results import SPLITS, Results, rows_where

MARKS = "thick: mean over seeds, thin: each seed"
WIDEST, NARROWEST = 3.2, 1.4
SWITCH = style.LineStyle("goals replaced", style.BLACK, (0, (1.5, 1.5)), "")
PAPER = style.LineStyle("mastered in the paper", style.GREY, (0, (1.5, 1.5)), "")
SHARED = style.LineStyle("phase that all share", style.GREY, "-", "")
SHARE_TICKS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
Statistics = Mapping[str, pd.DataFrame]


def _category_page(
    results: Results,
    goal_space: str,
    texts: tuple[str, str, str],
    handles: Sequence[Artist],
    last: float,
    ylabel: str = "success rate",
    xlabel: str | None = None,
) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """A page with a row for each split and a column for each feasible category; axes by both.

    texts: title, end of the subtitle, footnote; last: end of the x axis.
    """
    feasible = [results.categories.named(name).words for name in results.categories.feasible]
    figure, axes = style.page(
        texts[0],
        f"{style.describe(results, goal_space)}; {texts[1]}",
        handles,
        [f"{SPLIT_LABELS[split]}\n{ylabel}" for split in SPLITS],
        feasible,
        (max(9.6, 2.4 * len(feasible)), 5.4),
        xlabel or results.length_label,
        texts[2],
    )
    style.training_axis(axes.flat, last)
    style.fraction_axis(axes.flat)
    places = itertools.product(SPLITS, results.categories.feasible)
    return figure, dict(zip(places, axes.flat, strict=True))


# --- success per category -------------------------------------------------------------------------


def success_by_category(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """Rows are splits, columns are categories; thick lines: algorithms, thin lines: runs."""
    success = results.table("evaluation", goal_space=goal_space)
    marks = matrices.settings(results).paper_mastery
    fewest, most = success["n"].min(), success["n"].max()
    note = (
        f"Each point: {fewest if fewest == most else f'{fewest}-{most}'} episodes per seed "
        f"(standard error up to {0.5 / fewest**0.5:.2f}). No smoothing. "
        "Intervals of the means are in statistics/success.csv."
    )
    figure, axes = _category_page(
        results,
        goal_space,
        ("Success per category over training", style.seed_lines(results, goal_space, MARKS), note),
        [
            *style.algorithm_handles(results, goal_space),
            *([style.line_handle(PAPER, linewidth=1.2)] if marks else []),
        ],
        success[results.unit_column].max(),
    )
    panels = curves(results, goal_space)
    for place, ax in axes.items():
        lines = panels.get(place, [])
        if not lines:
            text = "no goals of this category\nin the goal space"
            look = {"size": 8, "color": style.GREY, "ha": "center", "va": "center"}
            ax.text(0.5, 0.5, text, transform=ax.transAxes, **look)
        _lines(ax, results, lines)
        if place[0] == SPLITS[0] and place[1] in marks:
            ax.axvline(marks[place[1]], color=PAPER.color, linestyle=PAPER.dash, linewidth=1.2)
    return figure


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
    panels: Curves = {}
    for space, split, algorithm in matrices.algorithms_of(results):
        if space == goal_space:
            points = matrices.evaluation_points(results, goal_space) + begins
            cube = matrices.success_curves(results, algorithm, goal_space, split)
            names = matrices.evaluated_categories(results, goal_space, split)
            for column, category in enumerate(names):
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


def phases(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """Rows are splits, columns are categories; one line per algorithm and phase."""
    drawn = [
        (phase, panels, is_shared(phase, panels))
        for phase in each_phase(results)
        if (panels := curves(phase.results, goal_space, phase.begins))
    ]
    note = (
        "Where goals are replaced, success is measured twice: on the goals before and after. "
        "No smoothing. Intervals are in statistics/phases.csv."
    )
    subtitle = style.seed_lines(results, goal_space, MARKS)
    figure, axes = _category_page(
        results,
        goal_space,
        ("Success per category over all phases", subtitle, note),
        [
            *style.algorithm_handles(results, goal_space),
            *([style.line_handle(SHARED)] if any(shared for *_, shared in drawn) else []),
            style.line_handle(SWITCH, linewidth=1.2),
            Patch(facecolor=style.SHADE, label="goals practised"),
        ],
        max(line.points[-1] for _, panels, _ in drawn for each in panels.values() for line in each),
        xlabel=UNIT_LABELS[results.unit],
    )
    for phase, panels, shared in drawn:
        for place, ax in axes.items():
            lines = panels.get(place, [])
            if phase.goals.split == place[0] and lines:
                ax.axvspan(phase.begins, lines[0].points[-1], color=style.SHADE, lw=0, zorder=0)
            if phase.replaces:
                ax.axvline(phase.begins, color=SWITCH.color, linestyle=SWITCH.dash, linewidth=1.2)
            _lines(ax, results, lines, shared)
    return figure


def _lines(ax: Axes, results: Results, lines: Sequence[Curve], shared: bool = False) -> None:
    """Draw the curves of one panel and phase; a shared phase is one line.

    With several runs there is a thin line for each, fainter if they are many.
    """
    styles = style.styles_of(results)
    for curve in lines[:1] if shared else lines:
        look = SHARED if shared else styles[curve.algorithm]
        if len(curve.runs) > 1:
            many = len(curve.runs) >= style.SEEDS_FOR_INTERVAL
            thin = {"lw": 0.5, "alpha": 0.3} if many else {"lw": 0.7, "alpha": 0.45}
            ax.plot(curve.points, curve.runs.T, color=look.color, **thin)
        style.mean_line(ax, curve.points, curve.runs.mean(axis=0), look)


# --- all categories together ----------------------------------------------------------------------


def sample_efficiency(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """One panel per split: IQM over training with interval, one line per algorithm."""
    figure, axes = style.page(
        "Sample efficiency",
        f"{style.describe(results, goal_space)}; IQM over seeds x feasible categories",
        style.algorithm_handles(results, goal_space),
        ["IQM of success rate"],
        [SPLIT_LABELS[split] for split in SPLITS],
        (9.0, 4.3),
        results.length_label,
        f"{style.interval_text(results, goal_space)} No smoothing.",
    )
    styles = style.styles_of(results)
    frame = rows_where(statistics["sample_efficiency"], goal_space=goal_space)
    frame = frame.sort_values(results.unit_column, kind="stable")
    for ax, split in zip(axes[0], SPLITS, strict=True):
        for algorithm in results.algorithms_in(goal_space):
            line = rows_where(frame, split=split, **algorithm._asdict())
            points, look = line[results.unit_column], styles[algorithm]
            ax.fill_between(points, line["low"], line["high"], color=look.color, alpha=0.15, lw=0)
            style.mean_line(ax, points, line["iqm"], look, zorder=2)
    style.training_axis(axes.flat, frame[results.unit_column].max())
    style.fraction_axis(axes.flat)
    return figure


# --- time to mastery ------------------------------------------------------------------------------


def mastery(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """Rows are splits, columns are categories; one step line per algorithm."""
    last = float(matrices.evaluation_points(results, goal_space)[-1])
    note = (
        f"Mastered: success above {MASTERED} at two evaluations in a row, counted at the "
        "first of them. Kaplan-Meier estimate. No intervals, no smoothing."
    )
    figure, axes = _category_page(
        results,
        goal_space,
        ("Time to mastery", "share of runs that have mastered a category", note),
        style.algorithm_handles(results, goal_space),
        last,
        "share of runs",
    )
    styles = style.styles_of(results)
    algorithms = results.algorithms_in(goal_space)
    # Wide lines first, so that no line hides another.
    widths = np.linspace(WIDEST, NARROWEST, len(algorithms)).tolist()
    for algorithm, width in zip(algorithms, widths, strict=True):
        options = {"linewidth": width, "markersize": width + 2.6, "markevery": None}
        for split in SPLITS:
            for category, times in times_of(results, algorithm, goal_space, split).items():
                steps = kaplan_meier(*times)
                x = np.append(steps.times, last)
                shares = 1.0 - np.append(steps.shares, steps.shares[-1])
                ax, look = axes[split, category], styles[algorithm]
                style.step_line(ax, x, shares, look, where="post", **options)
    return figure


# --- practice: of all episodes, and without exploration -------------------------------------------


def practice(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """One panel per category: its share of each algorithm's episodes in each window."""
    texts = ("What each sampler practised", "share of episodes", "")
    return _shares(results, goal_space, results.algorithms_in(goal_space), window_shares, texts)


def exploitation(results: Results, statistics: Statistics, goal_space: str) -> Figure:
    """The same for algorithms that estimate competence, without exploration.

    Gaven et al. 2025, Figure 19.
    """
    texts = (
        "What each sampler chose to practise",
        "share without exploration",
        " Exploration: its average is taken off.",
    )
    algorithms = exploiting(results.algorithms_in(goal_space))
    return _shares(results, goal_space, algorithms, exploited_window_shares, texts)


def _shares(
    results: Results,
    goal_space: str,
    algorithms: Sequence[Algorithm],
    shares_of: Callable[[Results, Algorithm, str], tuple[Matrix, Matrix]],
    texts: tuple[str, str, str],
) -> Figure:
    """One panel per category: share of episodes in each window, a step line per algorithm.

    Args:
        shares_of: returns window ends, in the unit of the experiment, (windows,), and shares,
            (categories, windows).
        texts: title, subtitle, and addition to the footnote.
    """
    categories = [category.words for category in results.categories]
    figure, axes = style.page(
        texts[0],
        f"{style.describe(results, goal_space, algorithms)}; {texts[1]}, all seeds together",
        style.algorithm_handles(results, goal_space, algorithms=algorithms),
        ["share of episodes"],
        categories,
        (max(9.6, 2.15 * len(categories)), 4.0),
        results.length_label,
        f"Up: square-root scale, so that rare categories show.{texts[2]}",
    )
    styles, last = style.styles_of(results), 0
    for algorithm in algorithms:
        ends, shares = shares_of(results, algorithm, goal_space)
        last = max(last, int(ends[-1]))
        every = (1, style.marker_spacing(len(ends)))
        options = {"linewidth": 1.6, "markersize": 3.5, "markevery": every}
        for ax, share in zip(axes[0], shares, strict=True):
            # Steps, not slopes: a share belongs to its whole window.
            x, y = np.append(0, ends), np.append(share[:1], share)
            style.step_line(ax, x, y, styles[algorithm], where="pre", **options)
    ax = axes[0, 0]
    ax.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0.0)), np.square))
    ax.set_ylim(0.0, 1.0)
    ax.set_yticks(SHARE_TICKS, [f"{tick:g}" for tick in SHARE_TICKS])
    style.training_axis(axes.flat, last)
    return figure
