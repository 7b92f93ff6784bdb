"""The combined tables of one experiment, and what each of them holds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.tables.grid import (
    RUN_COLUMNS,
    UNIT_LABELS,
    Algorithm,
    Run,
    declared_runs,
    reference_algorithm,
    run_of,
    seeds_by_algorithm,
    unit_of,
)
from analysis.tables.labels import Algorithms, Names, categories_of, names_in
from magellan.config import UNIT_COLUMNS, Unit
from magellan.core.columns import COLUMNS, CRITIC, PHASE
from magellan.worlds import SPLITS, Categories


@dataclass(frozen=True)
class TableSpec:
    """What a table of a run may hold.

    Attributes:
        columns: all of them, in order.
        keys: those that identify a row.
        fractions: those within 0 and 1.
        amounts: those of 0 or more, without a limit.
        gaps: those that may be empty.
        later: the last ones, if tables of older versions lack them; they are empty then.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    fractions: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


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
    # No loss of the actor before its warm-up, none of a competence head where there is none.
    "training": TableSpec(
        COLUMNS["training"],
        ("update",),
        ("epsilon",),
        ("critic_loss", "temperature", "competence_loss"),
        ("critic_loss", "actor_loss", "entropy", "competence_loss"),
    ),
}

RUN_WORDS = ("sampler", "variant", "goal_space")
TEXT_COLUMNS = (*RUN_WORDS, "split", "category", "estimator", "kind", "prompt")
COUNTS = ("update", "step", "episode", "n", "successes")
WHOLE_COLUMNS = ("seed", PHASE, *COUNTS, "moment", "goal", "code")


@dataclass(frozen=True)
class Results:
    """The combined tables of one experiment.

    Attributes:
        tables: one frame for each name in `TABLES`, with the leading columns `RUN_COLUMNS`.
        manifest: `experiment` (the configuration asked for), `plan` (its grid), `runs` (one
            manifest each), `missing` (planned runs that are not there, each with its reason) and
            `notes` (what differs between the runs and is no part of the configuration).
        whole: the same runs with the rows of all phases, where `tables` has those of the last of
            several (`analysis.phases`).
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
        """What ends the runs, and what the length of training is counted in."""
        return unit_of(self.manifest["runs"][0]["config"])

    @functools.cached_property
    def categories(self) -> Categories:
        """Categories of the world that the runs were made in."""
        return categories_of(self.manifest["runs"][0])

    @property
    def length_label(self) -> str:
        """The length of training in words, for axes."""
        return UNIT_LABELS[self.unit] + self.counted_from

    @property
    def counted_from(self) -> str:
        """Words for an axis of training whose 0 is not the beginning of the run; else none."""
        phases = any(len(run["config"].get("phases") or ()) > 1 for run in self.manifest["runs"])
        return " of the last phase" if phases else ""

    @property
    def at(self) -> str:
        """Column of that unit: where evaluations are by plan."""
        return UNIT_COLUMNS[self.unit]

    @functools.cached_property
    def names(self) -> Names:
        """What the experiment calls samplers, estimators and variants."""
        return names_in(self.manifest)

    @functools.cached_property
    def algorithms(self) -> Algorithms:
        """Declared algorithms, in the order of samplers and variants, with their names."""
        declared = dict.fromkeys(run.algorithm for run in declared_runs(self.manifest))
        return Algorithms(declared, self.names)

    @property
    def reference(self) -> Algorithm:
        """The algorithm that the others are compared with."""
        return reference_algorithm(self.experiment)

    @property
    def goal_spaces(self) -> tuple[str, ...]:
        """Goal spaces that have a run, in the order of the configuration."""
        return tuple(name for name in self.experiment["goal_spaces"] if name in self._seeds)

    @property
    def runs(self) -> list[Run]:
        """The runs that are there."""
        return [run_of(manifest) for manifest in self.manifest["runs"]]

    def algorithms_in(self, goal_space: str) -> tuple[Algorithm, ...]:
        """Algorithms that have a run in a goal space, in the order of `algorithms`."""
        return tuple(name for name in self.algorithms if name in self._seeds[goal_space])

    def driver_of(self, algorithm: Algorithm) -> str | None:
        """Name of the estimator that an algorithm chooses its goals by; None where it has none."""
        for manifest in self.manifest["runs"]:
            if run_of(manifest).algorithm == algorithm:
                return manifest["driver"]
        return None

    def seeds_of(self, algorithm: Algorithm, goal_space: str) -> tuple[int, ...]:
        """Seeds of an algorithm's runs in a goal space, in the order of the configuration."""
        there = self._seeds[goal_space][algorithm]
        return tuple(seed for seed in self.experiment["seeds"] if seed in there)

    def seed_counts(self, goal_space: str) -> tuple[int, ...]:
        """Number of seeds of each algorithm in a goal space, in the order of `algorithms_in`."""
        algorithms = self.algorithms_in(goal_space)
        return tuple(len(self.seeds_of(algorithm, goal_space)) for algorithm in algorithms)

    def predicting(self, goal_space: str) -> tuple[Algorithm, ...]:
        """Algorithms whose runs in a goal space have an estimator of competence."""
        pairs = self.table("competence", goal_space=goal_space)[["sampler", "variant"]]
        there = set(pairs.drop_duplicates().itertuples(index=False, name=None))
        return tuple(name for name in self.algorithms_in(goal_space) if name in there)

    @functools.cached_property
    def _seeds(self) -> dict[str, dict[Algorithm, list[int]]]:
        return seeds_by_algorithm(self.runs)

    @property
    def has_phases(self) -> bool:
        """Whether a run has several phases: then all tables have the column `phase`."""
        return PHASE in self.tables["evaluation"].columns

    def table(self, name: str, **where: str | int) -> pd.DataFrame:
        """Rows of one table with the given values, for instance `sampler="random"`."""
        return rows_where(self.tables[name], **where)


def rows_where(frame: pd.DataFrame, **where: str | int) -> pd.DataFrame:
    """Rows of a table with the given values, by column."""
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


__all__ = [
    "RUN_COLUMNS",
    "SPLITS",
    "TABLES",
    "TEXT_COLUMNS",
    "WHOLE_COLUMNS",
    "Results",
    "TableSpec",
    "rows_where",
]
