"""What happens to success where goals are replaced, and how soon is it back?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.statistics import by_phase
from analysis.statistics.by_phase import Curve, Panel
from analysis.tables.labels import SPLIT_LABELS
from analysis.tables.phases import OnePhase, each_phase
from analysis.tables.results import SPLITS, Results
from analysis.tables.units import UNIT_LABELS

MARKS = "thick: mean over seeds, thin: each seed"
FOOTNOTE = (
    "Where goals are replaced, success is measured twice: on the goals before and after. "
    "No smoothing. Intervals are in statistics/phases.csv."
)
SHADE = "#F1EDE2"
SWITCH = style.LineStyle("goals replaced", "#000000", (0, (1.5, 1.5)), "")
SHARED = style.LineStyle("phase that all share", style.GREY, "-", "")


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories, one line per algorithm and phase."""
    marks = style.seed_lines(results, goal_space, MARKS)
    drawn = [(phase, by_phase.curves(phase, goal_space)) for phase in each_phase(results)]
    drawn = [(phase, found) for phase, found in drawn if found]
    feasible = results.categories.feasible
    shared = any(by_phase.is_shared(*each) for each in drawn)
    figure, axes = style.page(
        (len(SPLITS), len(feasible)),
        (max(9.6, 2.4 * len(feasible)), 5.4),
        "Success per category over all phases",
        f"{style.describe(results, goal_space)}; {marks}",
        _handles(results, goal_space, shared),
        sharex=True,
        sharey=True,
    )
    for phase, found in drawn:
        _phase(axes, results, phase, found)
    for row, split in enumerate(SPLITS):
        axes[row, 0].set_ylabel(f"{SPLIT_LABELS[split]}\nsuccess rate")
    for column, category in enumerate(feasible):
        axes[0, column].set_title(results.categories.named(category).words)
        axes[-1, column].set_xlabel(UNIT_LABELS[results.unit])
    last = max(curve.points[-1] for _, found in drawn for each in found.values() for curve in each)
    style.training_axis(axes.flat, last)
    style.fraction_axis(axes.flat)
    style.footnote(figure, FOOTNOTE)
    return figure


def _handles(results: Results, goal_space: str, shared: bool) -> Sequence[Artist]:
    handles = style.algorithm_handles(results, goal_space)
    if shared:
        handles.append(style.line_handle(SHARED))
    handles.append(style.line_handle(SWITCH, linewidth=1.2))
    return [*handles, Patch(facecolor=SHADE, label="goals practised")]


def _phase(
    axes: style.AxesGrid,
    results: Results,
    phase: OnePhase,
    found: Mapping[Panel, Sequence[Curve]],
) -> None:
    """One phase in all panels, (splits, categories)."""
    shared = by_phase.is_shared(phase, found)
    feasible = results.categories.feasible
    for row, split in enumerate(SPLITS):
        for column, category in enumerate(feasible):
            curves = found.get((split, category), [])
            _where(axes[row, column], phase, split, curves)
            _lines(axes[row, column], results, curves, shared)


def _where(ax: Axes, phase: OnePhase, split: str, lines: Sequence[Curve]) -> None:
    """Shade a phase where its goals are practised, and mark a beginning with new goals."""
    if phase.goals.split == split and lines:
        ax.axvspan(phase.begins, lines[0].points[-1], color=SHADE, lw=0, zorder=0)
    if phase.replaces:
        ax.axvline(phase.begins, color=SWITCH.color, linestyle=SWITCH.dash, linewidth=1.2)


def _lines(ax: Axes, results: Results, lines: Sequence[Curve], shared: bool) -> None:
    """The curves of one phase; a phase that all algorithms share is one line."""
    styles = style.algorithm_styles(results.algorithms)
    for curve in lines[:1] if shared else lines:
        look = SHARED if shared else styles[curve.algorithm]
        style.run_lines(ax, curve.points, curve.runs, look.color)
        style.mean_line(ax, curve.points, curve.mean, look)
