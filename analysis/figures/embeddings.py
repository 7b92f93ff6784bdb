"""The estimator's hidden states of goals and its predictions: one panel for each moment."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.studies.embeddings import Embedding, project
from analysis.tables.labels import SPLIT_LABELS, sampler_label
from analysis.tables.results import rows_where
from magellan.core.errors import InputError

COLUMNS = 3
LEVELS = np.linspace(0.0, 1.0, 21)
SHADES = Normalize(0, 1 / 0.75)
"""A predicted competence of 1 is at 0.75 of the colour map."""
MARKERS = {"train": "o", "unseen": "^"}


def draw(embedding: Embedding, by: str = "category") -> Figure:
    """t-SNE of the hidden states that the estimator's head reads.

    Args:
        embedding: from `analysis.studies.embeddings.load`.
        by: colours by `category` or `kind`, the world's finer classes of goals.
    """
    colors = _colors(embedding, by)
    columns = min(COLUMNS, len(embedding.moments))
    rows = -(-len(embedding.moments) // columns)
    goals = embedding.goals
    figure, axes = style.page(
        (rows, columns),
        (max(8.0, 3.4 * columns + 0.8), 1.5 + 3.2 * rows),
        "Where goals lie for the estimator",
        f"{sampler_label(embedding.sampler)}, goal space {embedding.goal_space}, seed "
        f"{embedding.seed}; {len(goals)} goals; background: predicted competence, interpolated",
        _handles(embedding, colors, by),
    )
    for ax, moment in zip(axes.flat, embedding.moments, strict=False):
        points = project(moment.vectors)
        _background(ax, points, moment.competence)
        _goals(ax, points, goals, colors, by)
        ax.set_title(moment.words[:1].upper() + moment.words[1:])
    for ax in axes.flat[len(embedding.moments) :]:
        ax.set_axis_off()
    shades = ScalarMappable(SHADES, style.COMPETENCE)
    bar = figure.colorbar(shades, ax=axes.ravel().tolist(), fraction=0.04, pad=0.02)
    bar.set_label("Predicted competence")
    bar.ax.set_ylim(0, 1)
    style.footnote(
        figure,
        "t-SNE of the hidden states that the estimator's head reads, each panel by itself. Near "
        "goals are read alike; distances between groups mean nothing.",
    )
    return figure


def _colors(embedding: Embedding, by: str) -> dict[str, object]:
    """Colours of categories or kinds, in the order of the legend."""
    colors = style.category_colors(embedding.categories)
    goals = embedding.goals
    if by == "category":
        return {name: color for name, color in colors.items() if name in set(goals[by])}
    kinds = [sorted(rows_where(goals, category=name)["kind"].unique()) for name in colors]
    names = dict.fromkeys(itertools.chain(*kinds))
    if len(names) > len(style.KINDS):
        raise InputError(
            f"--by: kind has {len(names)} colours here; allowed: kind for up to "
            f"{len(style.KINDS)} kinds of goals, or category"
        )
    return dict(zip(names, style.KINDS, strict=False))


def _background(ax: Axes, points: np.ndarray, competence: np.ndarray) -> None:
    """Draw predictions, linearly interpolated between goals."""
    ax.tricontourf(*points.T, competence, LEVELS, cmap=style.COMPETENCE, norm=SHADES, zorder=0)
    ax.use_sticky_edges = False  # else marks at the border are cut
    ax.margins(0.04)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)


def _goals(
    ax: Axes, points: np.ndarray, goals: pd.DataFrame, colors: dict[str, object], by: str
) -> None:
    for split, marker in MARKERS.items():
        for name, color in colors.items():
            rows = ((goals["split"] == split) & (goals[by] == name)).to_numpy()
            ax.scatter(
                *points[rows].T, s=11, marker=marker, color=color, edgecolors=style.EDGE, lw=0.3
            )


def _handles(embedding: Embedding, colors: dict[str, object], by: str) -> list[Line2D]:
    def label(name: str) -> str:
        return embedding.categories.named(name).words if by == "category" else name

    look = {"linestyle": "none", "markersize": 6, "markeredgecolor": style.EDGE}
    color_handles = [
        Line2D([], [], marker="s", color=color, label=label(name), **look)
        for name, color in colors.items()
    ]
    split_handles = [
        Line2D([], [], marker=marker, color=style.WHITE, label=SPLIT_LABELS[split], **look)
        for split, marker in MARKERS.items()
        if split in set(embedding.goals["split"])
    ]
    return color_handles + split_handles
