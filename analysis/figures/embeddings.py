"""Where goals lie for the estimator, and what it predicts of them: one panel for each moment."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.studies.embeddings import Embedding, project
from analysis.tables.labels import SPLIT_LABELS, category_colors, sampler_label
from magellan.core.errors import InputError

COLUMNS = 3
LEVELS = np.linspace(0.0, 1.0, 21)
BACKGROUND = matplotlib.colormaps["Greens"]
SHADE = 0.75
"""How much of the darkest colour a predicted competence of 1 has."""
MARKERS = {"train": "o", "unseen": "^"}
KIND_COLORS = tuple(matplotlib.colormaps["tab20"].colors)


def draw(embedding: Embedding, by: str = "category") -> Figure:
    """t-SNE of the hidden states that the estimator's head reads.

    Args:
        embedding: from `analysis.studies.embeddings.load`.
        by: `category`, or `kind`: as a world tells goals apart beyond that.
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
        places = project(moment.vectors)
        _background(ax, places, moment.competence)
        _goals(ax, places, goals, colors, by)
        ax.set_title(moment.words[:1].upper() + moment.words[1:])
    for ax in axes.flat[len(embedding.moments) :]:
        ax.set_axis_off()
    shades = ScalarMappable(Normalize(0, 1 / SHADE), BACKGROUND)
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
    """Of each category, or of each kind, in the order in which figures name them."""
    of_categories = category_colors(embedding.categories)
    there = embedding.goals
    if by == "category":
        return {name: of_categories[name] for name in of_categories if _has(there, by, name)}
    kinds = [
        kind
        for name in of_categories
        for kind in sorted(there.loc[there["category"] == name, "kind"].unique())
    ]
    names = dict.fromkeys(kinds)
    if len(names) > len(KIND_COLORS):
        raise InputError(
            f"--by: kind has {len(names)} colours here; allowed: kind for up to "
            f"{len(KIND_COLORS)} kinds of goals, or category"
        )
    return dict(zip(names, KIND_COLORS, strict=False))


def _has(goals: pd.DataFrame, column: str, name: str) -> bool:
    return bool((goals[column] == name).any())


def _background(ax: Axes, places: np.ndarray, competence: np.ndarray) -> None:
    """Between goals, predictions are interpolated linearly."""
    shades = ScalarMappable(Normalize(0, 1 / SHADE), BACKGROUND)
    ax.tricontourf(*places.T, competence, LEVELS, cmap=BACKGROUND, norm=shades.norm, zorder=0)
    ax.use_sticky_edges = False  # else goals at the border are cut in two
    ax.margins(0.04)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)


def _goals(
    ax: Axes, places: np.ndarray, goals: pd.DataFrame, colors: dict[str, object], by: str
) -> None:
    for split, marker in MARKERS.items():
        for name, color in colors.items():
            mine = ((goals["split"] == split) & (goals[by] == name)).to_numpy()
            ax.scatter(
                *places[mine].T, s=11, marker=marker, color=color, edgecolors="#333333", lw=0.3
            )


def _handles(embedding: Embedding, colors: dict[str, object], by: str) -> list[Line2D]:
    def words(name: str) -> str:
        return embedding.categories.named(name).words if by == "category" else name

    look = {"linestyle": "none", "markersize": 6, "markeredgecolor": "#333333"}
    of_colors = [
        Line2D([], [], marker="s", color=color, label=words(name), **look)
        for name, color in colors.items()
    ]
    of_splits = [
        Line2D([], [], marker=marker, color="#FFFFFF", label=SPLIT_LABELS[split], **look)
        for split, marker in MARKERS.items()
        if _has(embedding.goals, "split", split)
    ]
    return of_colors + of_splits
