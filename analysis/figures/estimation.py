"""Error of the estimated competence against the cost of estimating it."""

from __future__ import annotations

import itertools
import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from analysis.figures import style
from analysis.studies.estimation import COMPUTED, RUN, truth_label
from analysis.tables.grid import SPLIT_LABELS, number_text
from analysis.tables.results import Results

SMALLEST = 1_000
"""Episodes below which the axis is linear, so that it can show 0."""
SIDES = 0.6
"""Margin beyond the outermost marks, in powers of ten."""


def draw(results: Results, frame: pd.DataFrame) -> Figure:
    """One panel for each goal space: error over episodes played only to estimate.

    frame: from `analysis.studies.estimation.table`.
    """
    panels = list(frame.groupby(["goal_space", "sampler", "variant"], sort=False))
    counts = frame[["sampler", "variant"]].nunique()
    titles = [
        ", ".join([f"{space} goals", *itertools.compress(names, counts > 1)])
        for (space, *names), _ in panels
    ]
    styles = style.estimator_styles(list(dict.fromkeys(frame["estimator"])))
    against = truth_label(frame["truth"].iloc[0])
    goals = SPLIT_LABELS[frame["split"].iloc[0]].lower()
    runs = number_text(sorted(set(frame.loc[frame["status"] == RUN, "runs"])))
    confidence = results.experiment["analysis"]["confidence"]
    methods = sorted(set(frame.loc[frame["status"] == RUN, "interval"]))
    notes = " Hollow: no error by definition." if (frame["status"] != RUN).any() else ""
    notes += " Evaluated goals: computed, not run." if (frame["status"] == COMPUTED).any() else ""
    figure, axes = style.page(
        "What it costs to know one's competence",
        f"n = {runs} runs; error on {goals} against {against}, mean over training and categories",
        [style.line_handle(look, line=False) for look in styles.values()],
        ["Error of the estimated competence"],
        titles,
        (max(7.5, 3.0 * len(panels) + 0.6), 4.4),
        "Episodes played only to estimate",
        f"Bars: {100 * confidence:g}% intervals, {', '.join(methods)}.{notes}",
    )
    most = max(frame["estimating"].max(), 10.0 * SMALLEST)
    last = math.ceil(math.log10(most) + SIDES / 2)
    for ax, (_, rows) in zip(axes[0], panels, strict=True):
        _marks(ax, rows, styles)
        ax.set_xscale("symlog", linthresh=SMALLEST)
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.set_xticks([0, *(10.0**power for power in range(3, last + 1, 2))])
        ax.minorticks_off()
        ax.set_xlim(-SMALLEST * SIDES, 10.0**last)
    axes[0, 0].set_ylim(bottom=-0.01)
    return figure


def _marks(ax: Axes, rows: pd.DataFrame, styles: dict[str, style.LineStyle]) -> None:
    for row in rows.itertuples():
        look = styles[row.estimator]
        if not math.isnan(row.low):
            ax.plot([row.estimating] * 2, [row.low, row.high], color=look.color, lw=1.6)
        ax.plot(
            row.estimating,
            row.error,
            marker=look.marker,
            markersize=7,
            color=look.color,
            markerfacecolor=look.color if row.status == RUN else style.WHITE,
            linestyle="none",
            clip_on=False,
        )
