"""The tables of a run; equal runs have equal tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from magellan.competence import Outcomes
from magellan.config import RunConfig, phases_of
from magellan.core.columns import COLUMNS, NAMES, PHASE
from magellan.core.errors import InputError, shown
from magellan.core.files import write_table
from magellan.core.parsing import checked_numbers
from magellan.worlds import WORLDS, GoalSet

MOST = 2**62  # upper bound of a run's counts


class Record:
    """Rows of the tables, and running sums of rows to come.

    A row of `practice` ends after `budget.practice_window` episodes, and where a phase does, if its
    length is in episodes; those after the last phase are not counted. Runs with phases have a
    column `phase`, which is `self.phase` in new rows.
    """

    def __init__(self, config: RunConfig) -> None:
        budget, phases = config.budget, phases_of(config)
        self.phase = 1
        self._phased = len(phases) > 1
        written = {"goals": budget.record_goals, "outcomes": False}
        self.tables: dict[str, list[list[Any]]] = {
            name: [] for name in COLUMNS if written.get(name, True)
        }
        # Phase and columns of `outcomes` as numbers, (m, 7) per update with m episodes: as rows
        # they would be too large for checkpoints.
        self._outcomes: list[np.ndarray] | None = [] if budget.record_outcomes else None
        self._categories = WORLDS[config.world].categories.names
        self._window = budget.practice_window
        self._ends = [phase.ends for phase in phases] if budget.unit == "episodes" else None
        self._late: list[tuple[int, float]] = []  # category, success of episodes after the end
        self._practised = np.zeros((2, len(self._categories)), np.int64)
        self._seen = 0
        self._losses: dict[str, list[float]] = {}

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Append one row; its keys are the table's columns, except for the phase."""
        values = [row[column] for column in COLUMNS[table]]
        self.tables[table].append([self.phase, *values] if self._phased else values)

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table of this run."""
        return (PHASE, *COLUMNS[table]) if self._phased else COLUMNS[table]

    def record_outcomes(self, update: int, goals: GoalSet, outcomes: Outcomes) -> None:
        """Add rows of `outcomes`, if the run has that table: the episodes of an update.

        goals: the training goal space.
        """
        if self._outcomes is not None:
            columns = (
                np.full(len(outcomes), self.phase),
                np.full(len(outcomes), update),
                goals.codes_at(outcomes.goals),
                goals.categories_at(outcomes.goals),
                outcomes.standing_on,
                outcomes.success,
                outcomes.explored,
            )
            self._outcomes.append(np.column_stack(columns).astype(np.int64))

    def _all_outcomes(self) -> np.ndarray:
        """Outcomes of all updates, (n, 7)."""
        return np.concatenate([np.zeros((0, 7), np.int64), *(self._outcomes or ())])

    def practise(self, categories: np.ndarray, success: np.ndarray) -> None:
        """Count finished episodes, in order; add rows after every `practice_window` of them."""
        ends = self._ends or ()
        for category, reward in zip(categories, success, strict=True):
            if ends and self._seen == ends[-1]:
                self._late.append((int(category), float(reward)))
                continue
            self._practised[:, category] += (1, int(reward > 0))
            self._seen += 1
            if self._seen % self._window == 0 or self._seen in ends:
                self._close_window()

    def finish(self) -> None:
        """Close a phase's last window of `practice`, unless `ends` does."""
        if self._ends is None and (self._practised.any() or not self.tables["practice"]):
            self._close_window()

    def _close_window(self) -> None:
        for i, category in enumerate(self._categories):
            n, successes = (int(count) for count in self._practised[:, i])
            self.add(
                "practice",
                {"episode": self._seen, "category": category, "n": n, "successes": successes},
            )
        self._practised[:] = 0

    def losses(self, values: Mapping[str, float]) -> None:
        """Store the losses of one update until `close_losses`."""
        for name, loss in values.items():
            self._losses.setdefault(name, []).append(loss)

    def close_losses(self, **values: Any) -> None:
        """Append a row of `training`: `values`, and the mean losses since the last row.

        The competence loss is NaN if the estimator took no gradient step in between, that of the
        critic where there is none.
        """
        means = dict.fromkeys(("critic_loss", "competence_loss"), float("nan"))
        means |= {name: float(np.mean(losses)) for name, losses in self._losses.items()}
        self.add("training", {**values, **means})
        self._losses = {}

    def write(self, folder: Path) -> None:
        """Write all tables as CSV, each atomically."""
        for name, rows in self.tables.items():
            write_table(folder / f"{name}.csv", self.columns(name), rows)
        if self._outcomes is not None:
            first = 0 if self._phased else 1
            outcomes = (
                [phase, update, goal, self._categories[category], *values][first:]
                for phase, update, goal, category, *values in self._all_outcomes().tolist()
            )
            write_table(folder / "outcomes.csv", self.columns("outcomes"), outcomes)

    def state_dict(self) -> dict[str, Any]:
        """Return rows and running sums."""
        return {
            "tables": self.tables,
            "practised": self._practised,
            "seen": self._seen,
            "losses": self._losses,
            "late": self._late,
            "outcomes": None if self._outcomes is None else self._all_outcomes(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict` of this run, or of the run that it starts from."""
        tables, kinds = state["tables"], len(self._categories)
        self.tables = {
            name: [self._with_phase(name, row) for row in tables[name]] for name in self.tables
        }
        practised = checked_numbers(state["practised"], "practised", (2, kinds))
        self._practised = practised.astype(np.int64)
        self._seen = int(checked_numbers(state["seen"], "seen", ()))
        self._losses = {
            name: checked_numbers(losses, f"losses of {name}", (None,), -np.inf, np.inf).tolist()
            for name, losses in state["losses"].items()
        }
        if self._outcomes is not None:
            largest = [MOST, MOST, MOST, kinds - 1, MOST, MOST, MOST]
            outcomes = checked_numbers(state["outcomes"], "outcomes", (None, 7), -1, largest)
            self._outcomes = [outcomes.astype(np.int64)]
        self._late = []
        for late in state["late"]:
            category, success = checked_numbers(late, "late", (2,), 0, [kinds - 1, 1])
            self.practise(np.array([int(category)]), np.array([success]))

    def _with_phase(self, table: str, row: list[Any]) -> list[Any]:
        """Return a checkpoint's row, with phase 1 if it is from a run without phases.

        Raises:
            InputError: an invalid row.
        """
        columns = self.columns(table)
        phased = [1] * (self._phased and len(row) == len(columns) - 1) + [*row]
        if len(phased) != len(columns) or not all(map(_is_cell, columns, phased)):
            raise InputError(f"{table}: row {shown(row)} is not allowed; allowed: {columns}")
        return phased


def _is_cell(column: str, value: Any) -> bool:
    """Whether the type of a value fits the column: a name or a number."""
    if column in NAMES:
        return isinstance(value, str)
    if isinstance(value, int | np.integer):
        return abs(int(value)) <= MOST
    return isinstance(value, float)
