"""An estimator's hidden states of goals at several moments, from `python -m magellan embed`.

Gaven et al. 2025, Figures 6, 11, 21 and 22. The picture is a t-SNE, which preserves neighbours but
not distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file
from sklearn.manifold import TSNE

from analysis.tables.labels import categories_of
from analysis.tables.reading import read_columns
from analysis.tables.results import SPLITS, TableSpec
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

    @property
    def words(self) -> str:
        """Title of its panel."""
        return "before training" if self.update == 0 else f"episode {self.episode:,}"


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
    goals = read_columns(folder / "goals.csv", GOALS)
    _check_goals(goals, folder / "goals.csv", categories)
    predictions = read_columns(folder / "predictions.csv", PREDICTIONS)
    vectors = _vectors(folder / "vectors.safetensors", len(goals))
    moments = tuple(_moments(predictions, vectors, goals, folder / "predictions.csv"))
    return Embedding(goals, moments, categories, *names)


def _check_goals(goals: pd.DataFrame, path: Path, categories: Categories) -> None:
    if list(goals["goal"]) != list(range(len(goals))):
        raise InputError(f"{path}: goals are not numbered 0, 1, 2 and so on")
    if len(goals) < FEWEST:
        raise InputError(f"{path}: {len(goals)} goals; allowed: {FEWEST} or more")
    for column, allowed in (("split", SPLITS), ("category", categories.names)):
        invalid = goals[~goals[column].isin(allowed)]
        if len(invalid):
            value, goal = shown(invalid[column].iloc[0]), invalid["goal"].iloc[0]
            raise InputError(
                f"{path}: {column} is {value} for goal {goal}; allowed: {', '.join(allowed)}"
            )


def _vectors(path: Path, goals: int) -> dict[int, np.ndarray]:
    """Hidden states of each moment."""
    try:
        vectors = {int(name): values for name, values in load_file(path).items()}
    except (OSError, SafetensorError, ValueError, KeyError):
        raise InputError(f"{path}: cannot be read; allowed: a whole safetensors file") from None
    for number, values in vectors.items():
        if values.ndim != 2 or len(values) != goals or not np.isfinite(values).all():
            raise InputError(
                f"{path}: tensor {number} has shape {values.shape}; allowed: finite numbers, a row "
                f"for each of the {goals} goals"
            )
    return vectors


def _moments(
    predictions: pd.DataFrame, vectors: dict[int, np.ndarray], goals: pd.DataFrame, path: Path
) -> Iterator[Moment]:
    groups = dict(iter(predictions.groupby("moment")))
    if not groups or set(groups) != set(vectors):
        raise InputError(f"{path}: moments are not those of vectors.safetensors")
    for number, frame in sorted(groups.items()):
        if list(frame["goal"]) != list(goals["goal"]):
            raise InputError(f"{path}: moment {number} has other goals than goals.csv")
        first = frame.iloc[0]
        update, episode = int(first["update"]), int(first["episode"])
        yield Moment(update, episode, vectors[number], frame["competence"].to_numpy(float))


def project(vectors: np.ndarray) -> np.ndarray:
    """t-SNE in two dimensions, initialised with principal components: float64 (n, 2)."""
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=0)
    return np.asarray(tsne.fit_transform(vectors), float)
