"""A finished run read from its folder: configuration, recorded outcomes, evaluations."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from magellan.competence import Outcomes
from magellan.config import RunConfig, stored_config
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, shown
from magellan.core.parsing import read_json_object
from magellan.worlds import SPLITS, WORLDS, GoalSet

MANIFEST = "manifest.json"
MAX_COUNT = 10**12
"""Upper limit of updates, steps, episodes and codes in tables."""
RECORDED = "; runs with budget.record_outcomes: true write it"


class Point(NamedTuple):
    """A moment of a run, as in its tables."""

    update: int
    step: int
    episode: int


@dataclass(frozen=True)
class FinishedRun:
    """Configuration and length of a complete run.

    Attributes:
        folder: of the run.
        config: its configuration.
        backbone: SHA-256 of its language model's files.
        length: updates, steps and episodes at the end.
    """

    folder: Path
    config: RunConfig
    backbone: str
    length: Point

    @classmethod
    def read(cls, folder: Path, modules: tuple[str, ...] = ()) -> FinishedRun:
        """Read the manifest.

        modules: Python files with samplers and estimators of the run outside this package; they are
            executed.

        Raises:
            InputError: not the folder of a complete run of this code.
        """
        path = folder / MANIFEST
        if not path.exists():
            raise InputError(f"{folder} is not the folder of a complete run: no {MANIFEST} there")
        manifest = read_json_object(path)
        values = manifest.get("config")
        if manifest.get("status") != "complete" or not isinstance(values, dict):
            raise InputError(f"{path}: no manifest of a complete run")
        config = stored_config(values, manifest.get("identity"), modules, path)
        if config.phases:
            raise InputError(
                f"{path}: phases: the run has {len(config.phases)}; allowed: runs of one phase, as "
                "a replay does not change goal spaces"
            )
        lengths = [_count(manifest, key, path) for key in ("updates", "steps", "episodes")]
        backbone = manifest.get("backbone")
        digest = backbone.get("sha256") if isinstance(backbone, dict) else None
        return cls(folder, config, str(digest), Point(*lengths))

    def step_at(self, update: int) -> int:
        """Environment steps at an update, each of which but the first follows equally many."""
        if update == 0:
            return 0
        agent = self.config.agent
        spacing = math.ceil(agent.steps_per_update / agent.num_envs) * agent.num_envs
        return self.length.step - (self.length.update - update) * spacing


def _count(manifest: Mapping[str, Any], key: str, path: Path) -> int:
    value = manifest.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise InputError(f"{path}: {key} is {shown(value)}; allowed: whole numbers of 0 or more")
    return value


class RecordedOutcomes:
    """Outcomes in the order in which the run's estimators received them.

    updates: int64 (n,), not falling: the policy update at which each was received.
    """

    def __init__(self, updates: np.ndarray, outcomes: Outcomes) -> None:
        self._updates, self._outcomes = updates, outcomes

    @classmethod
    def read(cls, run: FinishedRun, goals: GoalSet) -> RecordedOutcomes:
        """Read `outcomes.csv`.

        Raises:
            InputError: missing, incomplete, or with goals outside the run's goal space.
        """
        path = run.folder / "outcomes.csv"
        lines = read_lines(path, COLUMNS["outcomes"], RECORDED)
        if len(lines) != (run.length.episode if run.length.update else 0):
            raise InputError(
                f"{path}: {len(lines)} rows; allowed: {run.length.episode}, the episodes of the run"
            )
        updates = np.array([line.whole("update", 1, run.length.update) for line in lines], np.int64)
        falls = np.flatnonzero(np.diff(updates) < 0)
        if len(falls):
            raise InputError(f"{path}: line {falls[0] + 3}: update is less than in the line before")
        codes = np.array([line.whole("goal", 0, MAX_COUNT) for line in lines], np.int64)
        positions = _positions(goals, codes, lines)
        categories, names = goals.categories_at(positions), goals.world.categories.names
        for line, category in zip(lines, categories.tolist(), strict=True):
            line.text("category", (names[category],))
        standing_on = np.array([line.whole("standing_on", -1, 127) for line in lines], np.int8)
        success = np.array([line.whole("success", 0, 1) for line in lines], np.float64)
        return cls(updates, Outcomes(positions, success, standing_on))

    def at(self, update: int) -> Outcomes:
        """Outcomes received at this update, possibly none."""
        first, last = np.searchsorted(self._updates, (update, update + 1))
        outcomes, rows = self._outcomes, slice(first, last)
        return Outcomes(outcomes.goals[rows], outcomes.success[rows], outcomes.standing_on[rows])

    def count_until(self, update: int) -> int:
        """Number of episodes received up to this update, inclusive."""
        return int(np.searchsorted(self._updates, update, side="right"))


def _positions(goals: GoalSet, codes: np.ndarray, lines: list[Line]) -> np.ndarray:
    """Positions of goals by code, int64 (n,)."""
    positions = goals.positions_of(codes)
    unknown = np.flatnonzero(positions < 0)
    if len(unknown):
        line = lines[unknown[0]]
        raise InputError(
            f"{line.path}: line {line.number}: goal is {codes[unknown[0]]}; allowed: codes of the "
            "run's goal space"
        )
    return positions


@dataclass(frozen=True)
class Evaluations:
    """Results of the run's own evaluations.

    Attributes:
        points: in order.
        success: of feasible categories, by point, split and category.
    """

    points: tuple[Point, ...]
    success: Mapping[tuple[Point, str, str], float]

    @classmethod
    def read(cls, run: FinishedRun) -> Evaluations:
        """Read `evaluation.csv`; InputError if it does not belong to this run."""
        path = run.folder / "evaluation.csv"
        names = WORLDS[run.config.world].categories.names
        success = {}
        for line in read_lines(path, COLUMNS["evaluation"]):
            key = _point(line, run), line.text("split", SPLITS), line.text("category", names)
            success[key] = line.fraction("success")
        points = tuple(dict.fromkeys(point for point, _, _ in success))
        if [p.update for p in points] != sorted(p.update for p in points):
            raise InputError(f"{path}: evaluations are not in order of update")
        return cls(points, success)


def _point(line: Line, run: FinishedRun) -> Point:
    return Point(
        line.whole("update", 0, run.length.update),
        line.whole("step", 0, MAX_COUNT),
        line.whole("episode", 0, MAX_COUNT),
    )


def read_goal_success(run: FinishedRun) -> dict[tuple[Point, str, int], int] | None:
    """Success of each evaluated goal by point, split and code; None if not recorded."""
    path = run.folder / "goals.csv"
    if not path.exists():
        return None
    return {
        (
            _point(line, run),
            line.text("split", SPLITS),
            line.whole("goal", 0, MAX_COUNT),
        ): line.whole("success", 0, 1)
        for line in read_lines(path, COLUMNS["goals"])
    }


@dataclass(frozen=True)
class Line:
    """A row of a table, as text by column, with file and line number."""

    path: Path
    number: int
    cells: Mapping[str, str]

    def text(self, column: str, allowed: tuple[str, ...]) -> str:
        """Return a cell, one of the allowed words."""
        word = self.cells[column]
        if word not in allowed:
            raise self._refusal(column, ", ".join(allowed))
        return word

    def whole(self, column: str, low: int, high: int) -> int:
        """Return a cell as an integer within limits."""
        try:
            value = int(self.cells[column])
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise self._refusal(column, f"whole numbers from {low} to {high}")
        return value

    def fraction(self, column: str) -> float:
        """Return a cell as a number from 0 to 1."""
        try:
            value = float(self.cells[column])
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise self._refusal(column, "numbers between 0 and 1")
        return value

    def _refusal(self, column: str, allowed: str) -> InputError:
        value = shown(self.cells[column])
        return InputError(
            f"{self.path}: line {self.number}: {column} is {value}; allowed: {allowed}"
        )


def read_lines(path: Path, columns: tuple[str, ...], hint: str = "") -> list[Line]:
    """Read a CSV table with exactly these columns.

    hint: appended to the error for a missing file.

    Raises:
        InputError: missing, truncated, or another table.
    """
    try:
        text = path.read_bytes().decode()
        table = list(csv.reader(io.StringIO(text), strict=True))
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing{hint}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: not a CSV table in UTF-8") from None
    header = tuple(table[0]) if table else ()
    if header != columns:
        raise InputError(
            f"{path}: columns are {shown(', '.join(header))}; allowed: {', '.join(columns)}"
        )
    if not text.endswith("\n"):
        raise InputError(f"{path}: ends in the middle of a line; the file is not whole")
    for number, cells in enumerate(table[1:], 2):
        if len(cells) != len(columns):
            raise InputError(
                f"{path}: line {number} has {len(cells)} cells; allowed: {len(columns)}"
            )
    return [
        Line(path, number, dict(zip(columns, cells, strict=True)))
        for number, cells in enumerate(table[1:], 2)
    ]
