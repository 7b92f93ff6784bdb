"""An estimator's hidden states of goals and its predictions: one panel for each moment.

From a folder of `python -m magellan embed`; Gaven et al. 2025, Figures 6, 11, 21 and 22. The
picture is a t-SNE, which preserves neighbours but not distances.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from safetensors import SafetensorError
from safetensors.numpy import load_file
from sklearn.manifold import TSNE

from analysis.figures import style
from analysis.tables.grid import SPLIT_LABELS, categories_of, sampler_label
from analysis.tables.reading import read_columns
from analysis.tables.results import SPLITS, TableSpec, rows_where
from magellan.core.errors import InputError, shown
from magellan.core.parsing import read_json_object
from magellan.worlds import Categories

GOALS = TableSpec(("goal", "split", "category", "kind", "code", "prompt"), ("goal",))
PREDICTIONS = TableSpec(
    ("moment", "update", "step", "episode", "goal", "competence"),
    ("moment", "goal"),
    fractions=("competence",),
)
FORMAT = 1
PERPLEXITY = 30.0
FEWEST = 5
"""Least number of goals in a picture."""


class Moment(NamedTuple):
    """One moment of a run.

    vectors: float32 (goals, width), hidden states.
    competence: float64 (goals,), predicted.
    """

    update: int
    episode: int
    vectors: np.ndarray
    competence: np.ndarray


class Embedding(NamedTuple):
    """Goals with their hidden states and predictions at each moment of a run.

    goals: columns of `GOALS`, a row for each goal.
    """

    goals: pd.DataFrame
    moments: tuple[Moment, ...]
    categories: Categories
    sampler: str
    goal_space: str
    seed: int


def load(folder: Path) -> Embedding:
    """Read and check a folder of `python -m magellan embed`.

    Raises:
        InputError: names the file and the error in it.
    """
    path = folder / "embedding.json"
    metadata = read_json_object(path)
    try:
        if metadata["format"] != FORMAT:
            raise InputError(f"{path}: format is {shown(metadata['format'])}; allowed: {FORMAT}")
        categories = categories_of(metadata)
        run = metadata["config"]
        names = str(run["sampler"]), str(run["goal_space"]), int(run["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({error!r}); allowed: a file of python -m magellan embed"
        ) from None
    path = folder / "goals.csv"
    goals = read_columns(path, GOALS)
    if list(goals["goal"]) != list(range(len(goals))):
        raise InputError(f"{path}: goals are not numbered 0, 1, 2 and so on")
    if len(goals) < FEWEST:
        raise InputError(f"{path}: {len(goals)} goals; allowed: {FEWEST} or more")
    for column, allowed in (("split", SPLITS), ("category", categories.names)):
        for goal, value in goals.loc[~goals[column].isin(allowed), column].head(1).items():
            raise InputError(
                f"{path}: {column} is {shown(value)} for goal {goal}; allowed: {', '.join(allowed)}"
            )
    return Embedding(goals, tuple(_moments(folder, goals)), categories, *names)


def _moments(folder: Path, goals: pd.DataFrame) -> Iterator[Moment]:
    path, table = folder / "vectors.safetensors", folder / "predictions.csv"
    groups = dict(iter(read_columns(table, PREDICTIONS).groupby("moment")))
    try:
        vectors = {int(name): values for name, values in load_file(path).items()}
    except (OSError, SafetensorError, ValueError, KeyError):
        raise InputError(f"{path}: cannot be read; allowed: a whole safetensors file") from None
    if not groups or set(groups) != set(vectors):
        raise InputError(f"{table}: moments are not those of {path.name}")
    for number, frame in sorted(groups.items()):
        values, first = vectors[number], frame.iloc[0]
        if values.ndim != 2 or len(values) != len(goals) or not np.isfinite(values).all():
            raise InputError(
                f"{path}: tensor {number} has shape {values.shape}; allowed: finite numbers, a row "
                f"for each of the {len(goals)} goals"
            )
        if list(frame["goal"]) != list(goals["goal"]):
            raise InputError(f"{table}: moment {number} has other goals than goals.csv")
        competence = frame["competence"].to_numpy(float)
        yield Moment(int(first["update"]), int(first["episode"]), values, competence)


def project(vectors: np.ndarray) -> np.ndarray:
    """t-SNE in two dimensions, initialised with principal components: float64 (n, 2)."""
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=0)
    return np.asarray(tsne.fit_transform(vectors), float)


# --- the picture ---


COLUMNS = 3
LEVELS = np.linspace(0.0, 1.0, 21)
SHADES = Normalize(0, 1 / 0.75)
"""A predicted competence of 1 is at 0.75 of the colour map."""
MARKERS = {"train": "o", "unseen": "^"}


def draw(embedding: Embedding, by: str = "category") -> Figure:
    """t-SNE of the hidden states that the estimator's head reads.

    by: colours by `category` or `kind`, the world's finer classes of goals.
    """
    colors = _colors(embedding, by)
    columns = min(COLUMNS, len(embedding.moments))
    rows = -(-len(embedding.moments) // columns)
    goals = embedding.goals
    figure, axes = style.page(
        "Where goals lie for the estimator",
        f"{sampler_label(embedding.sampler)}, goal space {embedding.goal_space}, seed "
        f"{embedding.seed}; {len(goals)} goals; background: predicted competence, interpolated",
        _handles(embedding, colors, by),
        [""] * rows,
        [""] * columns,
        (max(8.0, 3.4 * columns + 0.8), 1.5 + 3.2 * rows),
        note="t-SNE of the hidden states that the estimator's head reads, each panel by itself. "
        "Near goals are read alike; distances between groups mean nothing.",
        share=False,
    )
    for ax, moment in zip(axes.flat, embedding.moments, strict=False):
        points = project(moment.vectors)
        shading = {"cmap": style.COMPETENCE, "norm": SHADES, "zorder": 0}
        ax.tricontourf(*points.T, moment.competence, LEVELS, **shading)
        ax.use_sticky_edges = False  # else marks at the border are cut
        ax.margins(0.04)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.grid(visible=False)
        for (split, marker), (name, color) in itertools.product(MARKERS.items(), colors.items()):
            some = points[(goals["split"] == split) & (goals[by] == name)]
            look = {"color": color, "marker": marker, "edgecolors": style.EDGE}
            ax.scatter(*some.T, s=11, lw=0.3, **look)
        ax.set_title(f"Episode {moment.episode:,}" if moment.update else "Before training")
    for ax in axes.flat[len(embedding.moments) :]:
        ax.set_axis_off()
    shades = ScalarMappable(SHADES, style.COMPETENCE)
    bar = figure.colorbar(shades, ax=axes.ravel().tolist(), fraction=0.04, pad=0.02)
    bar.set_label("Predicted competence")
    bar.ax.set_ylim(0, 1)
    return figure


def _colors(embedding: Embedding, by: str) -> dict[str, object]:
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
