"""What a complete run has recorded, read from its last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from magellan.competence import Outcomes
from magellan.core.errors import InputError
from magellan.jobs.folder import MANIFEST
from magellan.jobs.trained import Point, TrainedAgent
from magellan.training.evaluate import EvaluationSet


@dataclass(frozen=True)
class RecordedRun:
    """A complete run with recorded outcomes.

    Attributes:
        agent: of its end.
        updates: int64 (n,), not falling: when the run's estimators received each outcome.
        outcomes: n, in that order.
        success: of feasible categories in its evaluations, by point, split and category, in order.
        goal_success: of each evaluated goal, by point, split and code; empty if not recorded.
    """

    agent: TrainedAgent
    updates: np.ndarray
    outcomes: Outcomes
    success: Mapping[tuple[Point, str, str], float]
    goal_success: Mapping[tuple[Point, str, int], int]

    @classmethod
    def read(cls, folder: Path, modules: tuple[str, ...] = ()) -> RecordedRun:
        """Read the folder of a run; `modules`: see `TrainedAgent.read`.

        Raises:
            InputError: not complete, without recorded outcomes, or with phases; or no agent.
        """
        if not (folder / MANIFEST).exists():
            raise InputError(f"{folder} is not the folder of a complete run: no {MANIFEST} there")
        agent = TrainedAgent.read(folder, modules)
        if not agent.complete:
            raise InputError(f"{agent.path} is not the end of the run: {agent.where}")
        if agent.config.phases:
            raise InputError(
                f"{folder}: phases: the run has {len(agent.config.phases)}; allowed: runs of one "
                "phase, as a replay does not change goal spaces"
            )
        with agent.fitting():
            record, tables = agent.state["record"], agent.state["record"]["tables"]
            if record["outcomes"] is None:
                raise InputError(
                    f"{folder} has no outcomes.csv; runs with budget.record_outcomes: true write it"
                )
            _, updates, codes, _, standing_on, won, _ = record["outcomes"].T
            positions = agent.goals.positions_of(codes)
            if (positions < 0).any():
                raise ValueError("a goal outside the goal space")
            success = {
                (Point(update, step, episode), split, category): value
                for update, step, episode, split, category, _, value, *_ in tables["evaluation"]
            }
            goal_success = {
                (Point(update, step, episode), split, code): value
                for update, step, episode, _, split, code, _, value, *_ in tables.get("goals", ())
            }
            outcomes = Outcomes(positions, won, standing_on)
        return cls(agent, updates, outcomes, success, goal_success)

    @property
    def points(self) -> list[Point]:
        """The run's evaluations, in order."""
        return list(dict.fromkeys(point for point, _, _ in self.success))

    def success_at(self, point: Point, goals: EvaluationSet) -> np.ndarray:
        """Success of evaluated goals in an evaluation, float64 (n,); NaN if not recorded."""
        codes, split = goals.space.codes_at(goals.positions).tolist(), goals.space.split
        return np.array([self.goal_success.get((point, split, code), np.nan) for code in codes])

    def step_at(self, update: int) -> int:
        """Environment steps at an update, each of which but the first follows equally many."""
        if update == 0:
            return 0
        agent, end = self.agent.config.agent, self.agent.point
        spacing = math.ceil(agent.steps_per_update / agent.num_envs) * agent.num_envs
        return end.step - (end.update - update) * spacing

    def received(self, update: int) -> Outcomes:
        """Outcomes received at this update, possibly none."""
        rows = slice(*np.searchsorted(self.updates, (update, update + 1)))
        every = self.outcomes
        return Outcomes(every.goals[rows], every.success[rows], every.standing_on[rows])

    def episodes_until(self, update: int) -> int:
        """Number of episodes received up to this update, inclusive."""
        return int(np.searchsorted(self.updates, update, side="right"))
