"""Cost of a category in practice, for each learner, and the state of its critic."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.tables.labels import category_colors
from analysis.tables.results import Results, rows_where
from magellan.core.errors import InputError

CRITIC = {"dormant": "Dormant units of the critic", "spread": "Spread of what it reads"}
SCRIPT = "stairs"
"""Script of the lower rows."""


def draw(results: Results, frame: pd.DataFrame) -> Figure:
    """A column for each learner: costs by script, then dormant units and spread for `SCRIPT`.

    Args:
        results: runs of `scripted` with variants named LEARNER.SCRIPT.
        frame: from `analysis.studies.cost.costs`.

    Raises:
        InputError: a variant has another name.
    """
    names = frame["variant"].str.rpartition(".")
    unnamed = frame["variant"][names[0] == ""]
    if len(unnamed):
        raise InputError(
            f"--stem: variant {unnamed.iloc[0]!r} cannot be drawn; allowed: LEARNER.SCRIPT"
        )
    frame = frame.assign(learner=names[0], script=names[2])
    frame = frame[
        frame["practised"] >= frame.groupby(["variant", "seed"])["practised"].transform("max") / 6
    ]
    learners = list(dict.fromkeys(frame["learner"]))
    lines = list(dict.fromkeys(zip(frame["category"], frame["script"], strict=True)))
    lines.sort(key=lambda line: results.categories.names.index(line[0]))
    colors = category_colors(results.categories)
    categories = set(frame["category"])
    handles = [
        Line2D([], [], color=color, label=name.replace("_", " "), lw=2)
        for name, color in colors.items()
        if name in categories
    ]
    never = {"marker": ">", "linestyle": "none", "markerfacecolor": "#FFFFFF", "color": style.GREY}
    figure, axes = style.page(
        (3, len(learners)),
        (2.9 * len(learners) + 1.2, 8.0),
        "What practice costs a learner",
        f"Goal space {results.goal_spaces[0]}, scripted practice, no sampler; a mark is a run",
        [*handles, Line2D([], [], **never, label="not mastered in so many")],
        sharex="row",
        sharey="row",
    )
    for column, learner in enumerate(learners):
        _costs(axes[0, column], rows_where(frame, learner=learner), lines, colors)
        axes[0, column].set_title(learner)
        for ax, (key, label) in zip(axes[1:, column], CRITIC.items(), strict=True):
            _curves(ax, results, f"{learner}.{SCRIPT}", key, colors)
            axes[1 if key == "dormant" else 2, 0].set_ylabel(f"{label},\n{SCRIPT}")
    axes[0, 0].set_yticks(
        range(len(lines)), [f"{name.replace('grow_', '')}, {part}" for name, part in lines]
    )
    axes[0, 0].invert_yaxis()
    for ax in axes[0]:
        ax.set_xlim(left=0)
        ax.set_xlabel("episodes of the category until mastered")
    style.fraction_axis(axes[1:].flat)
    last = results.tables["evaluation"][results.unit_column].max()
    style.training_axis(axes[1:].flat, last)
    for ax in axes[2]:
        ax.set_xlabel(results.length_label)
    return figure


def _costs(ax: Axes, rows: pd.DataFrame, lines: list, colors: dict) -> None:
    """A mark for each run: filled at mastery, hollow at the end of practice without mastery."""
    for row in rows.itertuples():
        mastered, color = not np.isnan(row.cost), colors[row.category]
        ax.plot(
            row.cost if mastered else row.practised,
            lines.index((row.category, row.script)),
            marker="o" if mastered else ">",
            markersize=6,
            color=color,
            markerfacecolor=color if mastered else "#FFFFFF",
            linestyle="none",
        )


def _curves(ax: Axes, results: Results, variant: str, key: str, colors: dict) -> None:
    """A line for each run and category."""
    table = results.tables["evaluation"]
    table = table[(table["variant"] == variant) & (table["split"] == "train")]
    for (category, _), rows in table.groupby(["category", "seed"], sort=False):
        ax.plot(rows[results.unit_column], rows[key], color=colors[category], lw=1.4)
