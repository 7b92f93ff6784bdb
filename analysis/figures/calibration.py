"""Predicted competence against observed success, on training goals and unseen goals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.statistics import summaries
from analysis.tables.grid import SPLIT_LABELS, sampler_label
from analysis.tables.results import SPLITS, Results, rows_where

OBSERVED = style.LineStyle("observed success", style.BLACK, (0, (1, 1.3)), "o")
DASHES: dict[str, Any] = {"train": "-", "unseen": (0, (4, 1.5))}
ROWS = len(SPLITS) + 1
ROW_INCHES, SEVERAL_ROW_INCHES = 1.8, 0.85
POINT = "point"
"""Column of the evaluation points, in any unit."""
Styles = Mapping[str, style.LineStyle]


def calibration(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """Columns are categories; rows are training goals, unseen goals and learning progress."""
    sampler, categories = results.reference.sampler, results.categories
    algorithms = [name for name in results.predicting(goal_space) if name.sampler == sampler]
    several = len(algorithms) > 1
    frame = rows_where(summaries.predictions(results), goal_space=goal_space, sampler=sampler)
    frame = frame.rename(columns={results.unit_column: POINT})
    styles = style.estimator_styles(list(dict.fromkeys(frame["estimator"])))
    seed_marks = ", thin: the prediction of each seed" if len(styles) == 1 else ""
    marks = style.seed_lines(results, goal_space, f"lines: mean over seeds{seed_marks}", algorithms)
    labels = [f"{SPLIT_LABELS[split]}\nsuccess rate" for split in SPLITS]
    labels.append("Estimated learning\nprogress")
    if several:
        labels = ["training", "unseen", "progress"]
    inches = (SEVERAL_ROW_INCHES if several else ROW_INCHES) * ROWS * len(algorithms)
    figure, axes = style.page(
        f"Predicted competence against observed success, {sampler_label(sampler)}",
        f"{style.describe(results, goal_space, algorithms)}; {marks}",
        _handles(styles),
        labels * len(algorithms),
        [category.words for category in categories],
        (max(10.0, 2.0 * len(categories)), 1.4 + inches),
        results.length_label,
        "Predictions are means over the evaluated goals. Impossible goals are not played: "
        "success 0 by construction. Progress: estimated learning progress. No smoothing.",
        sharey=False,
    )
    for index, algorithm in enumerate(algorithms):
        rows = axes[ROWS * index : ROWS * (index + 1)]
        _block(rows, rows_where(frame, **algorithm._asdict()), categories.names, styles)
        if several:
            for ax in rows[:-1, 0]:
                ax.set_yticks([0.0, 0.5, 1.0])
            # The name may be wider than its panel: a blank title reserves its height instead.
            rows[0, 0].set_title(" ", loc="left", pad=4)
            look = {"xytext": (0, 4), "textcoords": "offset points", "weight": "bold"}
            name = results.figure_labels[algorithm]
            text = rows[0, 0].annotate(name, (0, 1), xycoords="axes fraction", **look)
            text.set_in_layout(False)
    highest = max(ax.get_ylim()[1] for ax in axes[ROWS - 1 :: ROWS].flat)
    for ax in axes[ROWS - 1 :: ROWS].flat:
        ax.set_ylim(0, highest)
    for ax in axes[0] if several else ():
        ax.set_title(ax.get_title(), pad=20)
    style.training_axis(axes.flat, frame[POINT].max())
    return figure


def _block(
    axes: np.ndarray, frame: pd.DataFrame, categories: tuple[str, ...], styles: Styles
) -> None:
    marks = {"linewidth": 1.5, "markersize": 3.5, "markerfacecolor": "white", "zorder": 3}
    for column, category in enumerate(categories):
        of_category = rows_where(frame, category=category)
        for ax, split in zip(axes[:-1, column], SPLITS, strict=True):
            rows = rows_where(of_category, split=split)
            for (estimator, _), run in rows.groupby(["estimator", "seed"]):
                if len(styles) == 1:
                    look = {"color": styles[estimator].color, "lw": 0.7, "alpha": 0.5}
                    ax.plot(run[POINT], run["competence"], **look)
            _line(ax, rows.groupby(POINT)["success"].mean(), OBSERVED, **marks)
            _estimates(ax, rows, "competence", styles, 1.8)
        _estimates(axes[-1, column], of_category, "learning_progress", styles, 1.6)
    style.fraction_axis(axes[:-1].flat)
    for ax in axes[:, 1:].flat:
        ax.tick_params(labelleft=False)


def _estimates(ax: Axes, frame: pd.DataFrame, column: str, styles: Styles, width: float) -> None:
    """A line for each estimator and split: mean of a column over seeds."""
    for (estimator, look), split in itertools.product(styles.items(), SPLITS):
        rows = rows_where(frame, estimator=estimator, split=split)
        marks = {"marker": look.marker if len(styles) > 1 else "", "markersize": 4}
        options = {"linestyle": DASHES[split], "linewidth": width, **marks}
        _line(ax, rows.groupby(POINT)[column].mean(), look, **options)


def _line(ax: Axes, values: pd.Series, look: style.LineStyle, **changes: Any) -> None:
    if len(values):  # an empty unclipped line would appear in the corner
        changes["markevery"] = style.marker_spacing(len(values))
        ax.plot(values.index, values, **(style.line_options(look) | changes))


def _handles(styles: Styles) -> list[Line2D]:
    """Legend entries of observed success and of each estimator on both splits."""
    handles = [style.line_handle(OBSERVED, markersize=4, markerfacecolor="white")]
    for look, split in itertools.product(styles.values(), SPLITS):
        name, marker = (look.label, look.marker) if len(styles) > 1 else ("predicted", "")
        label = f"{name}, {SPLIT_LABELS[split].lower()}"
        handles.append(style.line_handle(look, linestyle=DASHES[split], marker=marker, label=label))
    return handles
