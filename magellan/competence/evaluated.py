"""Competence measured by playing: the estimators of Eval-ALP and EK-Eval-ALP.

Every N training episodes the current policy plays each arm (a goal, or a category of goals) a few
thousand times, only to count successes. Now is the success rate of the last evaluation, delayed
that of the one before (Gaven et al. 2025, section 5.1: every 1,000 episodes, 2,048 episodes per
arm). Precise, but so expensive that the paper computes the cost of the per-goal version instead of
running it; `cost` counts these episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.base import ArmEstimator, Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.parsing import checked_numbers
from magellan.core.settings import Count, Section
from magellan.worlds import GoalSet


class EvaluationSettings(Section):
    """The estimators `evaluated_goals` and `evaluated_buckets` (Eval-ALP and EK-Eval-ALP)."""

    every: Count = Field(1_000, description="Training episodes between evaluations.")
    episodes: int = Field(
        2_048, ge=1, le=10**6, description="Episodes played per arm in an evaluation."
    )


class EvaluatedGoals(ArmEstimator):
    """Success rates of each goal in the last two evaluations; 0 before the first.

    For small goal spaces, as each goal is played `episodes` times.

    rng: stream that draws the goals to play.
    """

    def __init__(
        self, goals: GoalSet, settings: EvaluationSettings, rng: np.random.Generator
    ) -> None:
        n_arms = len(goals) if self.arms == "goals" else len(goals.sizes)
        self._goals, self._settings, self._rng = goals, settings, rng
        self._next = self._begun = 0  # episodes at which an evaluation is due, or began
        self._now, self._delayed = np.zeros(n_arms), np.zeros(n_arms)
        self._pending: list[np.ndarray] = []  # rates of evaluations since the last update
        self._played_arms = np.zeros(0, np.int64)
        self._evaluated_anew = False

    def known(self) -> np.ndarray:
        """All arms that are evaluated."""
        return np.arange(len(self._goals))

    def _draw(self, arm: int, n: int) -> np.ndarray:
        """Goals to play for an arm, positions int64 (n,)."""
        return np.full(n, arm)

    def goals_to_evaluate(self, episodes: int) -> np.ndarray | None:
        if episodes < self._next:
            return None
        self._begun = episodes
        arms = self.known()
        self._played_arms = np.repeat(arms, self._settings.episodes)
        return np.concatenate([self._draw(int(arm), self._settings.episodes) for arm in arms])

    def record_evaluation(self, outcomes: Outcomes) -> None:
        self._next = (self._begun // self._settings.every + 1) * self._settings.every
        self.cost += len(outcomes)
        played = np.bincount(self._played_arms, minlength=len(self._now))
        won = np.bincount(self._played_arms, weights=outcomes.success, minlength=len(self._now))
        self._pending.append(won / np.maximum(played, 1))

    def update(self, outcomes: Outcomes) -> None:
        """Adopt the evaluations since the last update; outcomes of practice are ignored."""
        self._evaluated_anew = bool(self._pending)
        for rates in self._pending:
            self._now, self._delayed = rates, self._now
        self._pending = []

    def changed(self) -> np.ndarray:
        """All arms after an evaluation, none otherwise."""
        return self.known() if self._evaluated_anew else np.zeros(0, np.int64)

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._now[which], self._delayed[which]

    def state_dict(self) -> dict[str, Any]:
        return {
            "cost": self.cost,
            "next": self._next,
            "rng": self._rng.bit_generator.state,
            "now": self._now,
            "delayed": self._delayed,
            "pending": np.array(self._pending).reshape(-1, len(self._now)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cost = int(checked_numbers(state["cost"], "cost", ()))
        self._next = int(checked_numbers(state["next"], "next", ()))
        self._rng.bit_generator.state = state["rng"]
        (n,) = shape = self._now.shape
        self._now = checked_numbers(state["now"], "now", shape, 0, 1)
        self._delayed = checked_numbers(state["delayed"], "delayed", shape, 0, 1)
        self._pending = list(checked_numbers(state["pending"], "pending", (None, n), 0, 1))
        self._evaluated_anew = False

    def set_goal_space(self, goals: GoalSet) -> None:
        """Goals in both spaces keep their rates; new ones have 0. An evaluation is due at once."""
        former = self._goals.positions_in(goals, np.arange(len(goals)))
        self._now = np.where(former >= 0, self._now[former], 0.0)
        self._delayed = np.where(former >= 0, self._delayed[former], 0.0)
        self._goals, self._pending, self._next = goals, [], 0


class EvaluatedBuckets(EvaluatedGoals):
    """Every category that has goals is an arm; its goals are drawn with replacement.

    Impossible ones are played too: the paper's cost counts five groups.
    """

    arms = "categories"

    def known(self) -> np.ndarray:
        return np.flatnonzero(self._goals.sizes)

    def _draw(self, arm: int, n: int) -> np.ndarray:
        return self._goals.nth(arm, self._rng.integers(self._goals.sizes[arm], size=n))

    def set_goal_space(self, goals: GoalSet) -> None:
        """Categories keep their rates; an evaluation with the new goals is due at once."""
        self._goals, self._pending, self._next = goals, [], 0


@register_estimator("evaluated_goals", "Evaluated goals", EvaluationSettings, arms="goals")
def build_goals(parts: EstimatorParts, settings: EvaluationSettings) -> EvaluatedGoals:
    """Every goal of the training space."""
    return EvaluatedGoals(parts.goals, settings, parts.stream("evaluated_goals"))


@register_estimator(
    "evaluated_buckets", "Evaluated categories", EvaluationSettings, arms="categories"
)
def build_buckets(parts: EstimatorParts, settings: EvaluationSettings) -> EvaluatedBuckets:
    """Every category of the training space."""
    return EvaluatedBuckets(parts.goals, settings, parts.stream("evaluated_buckets"))
