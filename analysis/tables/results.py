"""The combined tables of one experiment, and their columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.tables import grid
from analysis.tables.grid import Algorithm, Run
from magellan.config import UNIT_COLUMNS
from magellan.config.schema import Unit
from magellan.core.columns import COLUMNS, CRITIC, PHASE
from magellan.worlds import SPLITS as SPLITS
from magellan.worlds import Categories


@dataclass(frozen=True)
class TableSpec:
    """Columns of a table of a run, and their allowed values."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]  # identify a row
    fractions: tuple[str, ...] = ()  # within 0 and 1
    amounts: tuple[str, ...] = ()  # 0 or more
    gaps: tuple[str, ...] = ()  # may be empty
    later: tuple[str, ...] = ()  # tables of older versions may lack these last ones


TABLES: Mapping[str, TableSpec] = {
    "evaluation": TableSpec(
        COLUMNS["evaluation"],
        ("episode", "split", "category"),
        ("success", "dormant"),
        gaps=CRITIC,
        later=CRITIC,
    ),
    "competence": TableSpec(
        COLUMNS["competence"],
        ("episode", "estimator", "split", "category"),
        ("competence", "delayed_competence", "learning_progress"),
    ),
    "practice": TableSpec(COLUMNS["practice"], ("episode", "category")),
    # The actor has no loss before its warm-up; not every run has a competence head.
    "training": TableSpec(
        COLUMNS["training"],
        ("update",),
        ("epsilon",),
        ("critic_loss", "temperature", "competence_loss"),
        ("critic_loss", "actor_loss", "entropy", "competence_loss"),
    ),
}

TEXT_COLUMNS = (
    *("sampler", "variant", "goal_space", "split", "category", "estimator", "kind", "prompt"),
    *("track", "axis"),
)
COUNTS = ("update", "step", "episode", "n", "successes")
WHOLE_COLUMNS = ("seed", PHASE, *COUNTS, "moment", "goal", "code")


@dataclass(frozen=True)
class Results:
    """The combined tables of one experiment.

    Attributes:
        tables: one frame for each name in `TABLES`, with the leading columns `RUN_COLUMNS`.
        manifest: `experiment` (its configuration), `plan` (its grid), `runs` (one manifest each),
            `missing` (missing planned runs, with reasons) and `notes` (differences between the runs
            other than their configuration).
        whole: the same runs with all phases, if `tables` has only the last of several.
    """

    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]
    whole: Results | None = None

    @property
    def experiment(self) -> Mapping[str, Any]:
        """Configuration of the experiment."""
        return self.manifest["experiment"]

    @functools.cached_property
    def unit(self) -> Unit:
        """Unit of training length, in which the budget is given."""
        return grid.unit_of(self.manifest["runs"][0]["config"])

    @functools.cached_property
    def categories(self) -> Categories:
        """Categories of the world of the runs."""
        return grid.categories_of(self.manifest["runs"][0])

    @property
    def length_label(self) -> str:
        """Axis label of training length."""
        return grid.UNIT_LABELS[self.unit] + self.counted_from

    @property
    def counted_from(self) -> str:
        """Addition to labels if training length counts from the last phase; else empty."""
        phases = any(len(run["config"].get("phases") or ()) > 1 for run in self.manifest["runs"])
        return " of the last phase" if phases else ""

    @property
    def unit_column(self) -> str:
        """Column of the unit of training length."""
        return UNIT_COLUMNS[self.unit]

    @functools.cached_property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """Declared algorithms, in the order of samplers and variants."""
        return tuple(dict.fromkeys(run.algorithm for run in grid.declared_runs(self.manifest)))

    @functools.cached_property
    def labels(self) -> Mapping[Algorithm, str]:
        """Labels of the algorithms in tables."""
        return grid.algorithm_labels(self.algorithms)

    @functools.cached_property
    def figure_labels(self) -> Mapping[Algorithm, str]:
        """Labels of the algorithms in figures, with the names of variants in `analysis.labels`."""
        return grid.algorithm_labels(self.algorithms, self.experiment["analysis"].get("labels"))

    @property
    def reference(self) -> Algorithm:
        """The algorithm that the others are compared with."""
        return grid.reference_algorithm(self.experiment)

    @property
    def goal_spaces(self) -> tuple[str, ...]:
        """Goal spaces that have a run, in the order of the configuration."""
        return tuple(name for name in self.experiment["goal_spaces"] if name in self._seeds)

    @property
    def runs(self) -> list[Run]:
        """The complete runs."""
        return [grid.run_of(manifest) for manifest in self.manifest["runs"]]

    def algorithms_in(self, goal_space: str) -> tuple[Algorithm, ...]:
        """Algorithms that have a run in a goal space, in the order of `algorithms`."""
        return tuple(name for name in self.algorithms if name in self._seeds[goal_space])

    def driver_of(self, algorithm: Algorithm) -> str | None:
        """Name of the estimator that drives an algorithm's sampler; None if it has none."""
        return next((run["driver"] for run in self.manifests_of(algorithm)), None)

    def manifests_of(self, algorithm: Algorithm) -> list[Mapping[str, Any]]:
        """Manifests of an algorithm's runs."""
        return [run for run in self.manifest["runs"] if grid.run_of(run).algorithm == algorithm]

    def seeds_of(self, algorithm: Algorithm, goal_space: str) -> tuple[int, ...]:
        """Seeds of an algorithm's runs in a goal space, in the order of the configuration."""
        seeds = self._seeds[goal_space][algorithm]
        return tuple(seed for seed in self.experiment["seeds"] if seed in seeds)

    def seed_counts(
        self, goal_space: str, algorithms: Sequence[Algorithm] | None = None
    ) -> tuple[int, ...]:
        """Number of seeds of each algorithm in a goal space (default: those of `algorithms_in`)."""
        listed = self.algorithms_in(goal_space) if algorithms is None else algorithms
        return tuple(len(self.seeds_of(algorithm, goal_space)) for algorithm in listed)

    def predicting(self, goal_space: str) -> tuple[Algorithm, ...]:
        """Algorithms whose runs in a goal space have an estimator of competence."""
        frame = self.table("competence", goal_space=goal_space)
        pairs = distinct(frame, Algorithm._fields)
        return tuple(name for name in self.algorithms_in(goal_space) if name in pairs)

    @functools.cached_property
    def evaluated(self) -> set[tuple]:
        """Goal space, split and category of each evaluation."""
        return distinct(self.tables["evaluation"], ("goal_space", "split", "category"))

    @functools.cached_property
    def points(self) -> Mapping[str, Any]:
        """Training length at the evaluations of each goal space, in `unit`: (points,) each."""
        return dict(self.tables["evaluation"].groupby("goal_space")[self.unit_column].unique())

    @functools.cached_property
    def _seeds(self) -> dict[str, dict[Algorithm, list[int]]]:
        return grid.seeds_by_algorithm(self.runs)

    @property
    def has_phases(self) -> bool:
        """Whether a run has several phases; then all tables have the column `phase`."""
        return PHASE in self.tables["evaluation"].columns

    def table(self, name: str, **where: str | int) -> pd.DataFrame:
        """Rows of one table with the given values, such as `sampler="random"`."""
        return rows_where(self.tables[name], **where)

    def rows_of(self, name: str, run: Run) -> pd.DataFrame:
        """Rows of one run in one table, in their order."""
        return self.tables[name].take(self._places[name].get(run, []))

    @functools.cached_property
    def _places(self) -> dict[str, Mapping[tuple, Any]]:
        keys = list(grid.RUN_COLUMNS)
        return {name: frame.groupby(keys).indices for name, frame in self.tables.items()}


def rows_where(frame: pd.DataFrame, **where: str | int) -> pd.DataFrame:
    """Rows of a table with the given values, by column."""
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def distinct(frame: pd.DataFrame, columns: Sequence[str]) -> set[tuple]:
    """The different rows of a table in these columns."""
    return set(zip(*(frame[name].tolist() for name in columns), strict=True))
