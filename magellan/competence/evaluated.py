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

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.errors import InputError
from magellan.core.parsing import checked_numbers
from magellan.core.settings import Count, Section
from magellan.worlds import GoalSet


class EvaluationSettings(Section):
    """Interval and size of evaluations."""

    every: Count = Field(1_000, description="Training episodes between evaluations.")
    episodes: int = Field(
        2_048, ge=1, le=10**6, description="Episodes played per arm in an evaluation."
    )


class Evaluated(CompetenceEstimator):
    """Success rates of arms in the last two evaluations; 0 before the first.

    A subclass defines the arms and which goals of an arm are played.

    rng: stream that draws the goals to play.
    n_arms: number of arms.
    """

    def __init__(self, settings: EvaluationSettings, rng: np.random.Generator, n_arms: int) -> None:
        self.cost = 0
        self._settings, self._rng = settings, rng
        self._next = self._begun = 0  # episodes at which an evaluation is due, or began
        self._now, self._delayed = np.zeros(n_arms), np.zeros(n_arms)
        self._pending: list[np.ndarray] = []  # rates of evaluations since the last update
        self._played_arms = np.zeros(0, np.int64)
        self._evaluated_anew = False

    def _arms(self) -> np.ndarray:
        """Arms to evaluate, int64 (k,)."""
        raise NotImplementedError

    def _draw(self, arm: int, n: int) -> np.ndarray:
        """Goals to play for an arm, positions int64 (n,)."""
        raise NotImplementedError

    def goals_to_evaluate(self, episodes: int) -> np.ndarray | None:
        if episodes < self._next:
            return None
        self._begun = episodes
        arms = self._arms()
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

    def known(self) -> np.ndarray:
        """All arms that are evaluated."""
        return self._arms()

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
        now = np.array(state["now"])
        if now.shape != self._now.shape:
            raise InputError(
                f"evaluated competence: saved for {len(now)} arms; this run has {len(self._now)}"
            )
        self.cost = int(checked_numbers(state["cost"], "cost", ()))
        self._next = int(checked_numbers(state["next"], "next", ()))
        self._rng.bit_generator.state = state["rng"]
        self._now = checked_numbers(now, "now", now.shape, 0, 1)
        self._delayed = checked_numbers(state["delayed"], "delayed", now.shape, 0, 1)
        self._pending = list(checked_numbers(state["pending"], "pending", (None, len(now)), 0, 1))
        self._evaluated_anew = False


class EvaluatedGoals(Evaluated):
    """Every goal is an arm, played `episodes` times: for small goal spaces."""

    def __init__(
        self, goals: GoalSet, settings: EvaluationSettings, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, rng, len(goals))
        self._goals = goals

    def _arms(self) -> np.ndarray:
        return np.arange(len(self._goals))

    def _draw(self, arm: int, n: int) -> np.ndarray:
        return np.full(n, arm)

    def set_goal_space(self, goals: GoalSet) -> None:
        """Goals in both spaces keep their rates; new ones have 0. An evaluation is due at once."""
        former = self._goals.positions_in(goals, np.arange(len(goals)))
        self._now = np.where(former >= 0, self._now[former], 0.0)
        self._delayed = np.where(former >= 0, self._delayed[former], 0.0)
        self._goals, self._pending, self._next = goals, [], 0

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """0 for goals outside the training space."""
        if goals is not self._goals:
            return np.zeros(len(positions)), np.zeros(len(positions))
        return self.competence(np.asarray(positions))


class EvaluatedBuckets(Evaluated):
    """Every category that has goals is an arm; its goals are drawn with replacement.

    Impossible ones are played too: the paper's cost counts five groups.
    """

    arms = "categories"

    def __init__(
        self, goals: GoalSet, settings: EvaluationSettings, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, rng, len(goals.sizes))
        self._goals = goals

    def _arms(self) -> np.ndarray:
        return np.flatnonzero(self._goals.sizes)

    def _draw(self, arm: int, n: int) -> np.ndarray:
        return self._goals.nth(arm, self._rng.integers(self._goals.sizes[arm], size=n))

    def set_goal_space(self, goals: GoalSet) -> None:
        """Categories keep their rates; an evaluation with the new goals is due at once."""
        self._goals, self._pending, self._next = goals, [], 0

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The competence of a goal's category, for any goal."""
        return self.competence(goals.categories_at(np.asarray(positions)))


class EvaluatedGoalsSettings(EvaluationSettings):
    """The estimator `evaluated_goals` (Eval-ALP)."""


class EvaluatedBucketsSettings(EvaluationSettings):
    """The estimator `evaluated_buckets`, which drives `ek_eval` (EK-Eval-ALP)."""


@register_estimator("evaluated_goals", "Evaluated goals", EvaluatedGoalsSettings, arms="goals")
def build_goals(parts: EstimatorParts, settings: EvaluatedGoalsSettings) -> EvaluatedGoals:
    """Every goal of the training space."""
    return EvaluatedGoals(parts.goals, settings, parts.stream("evaluated_goals"))


@register_estimator(
    "evaluated_buckets", "Evaluated categories", EvaluatedBucketsSettings, arms="categories"
)
def build_buckets(parts: EstimatorParts, settings: EvaluatedBucketsSettings) -> EvaluatedBuckets:
    """Every category of the training space."""
    return EvaluatedBuckets(parts.goals, settings, parts.stream("evaluated_buckets"))
