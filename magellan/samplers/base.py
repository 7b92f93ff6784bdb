"""The goal sampler: a competence estimator, a signal, and an exploration schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.samplers.arms import Arms, Goals
from magellan.samplers.choice import WeightedChoice
from magellan.samplers.schedules import ExponentialEpsilon

Signal = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (n,) each, to non-negative weights (n,)."""

Schedule = Callable[[int], float]
"""Number of sampler updates so far, to epsilon in [0, 1]."""


@dataclass(frozen=True)
class SamplerSettings:
    """Constants of the samplers; the released code's values, except the last.

    Ranges are checked where a user sets them, in `magellan.config`.
    """

    epsilon_start: float = 1.0
    epsilon_end: float = 0.2
    epsilon_decay: float = 320.0  # updates after which the distance to epsilon_end has shrunk by e
    window: int = 100  # outcomes per window of online (a goal) and ek_online (a category)
    threshold: float = 0.01  # magellan: smaller learning progress is taken for noise
    drop_standing_starts: bool = False  # ek_online: as released, ignore the 4.7 % on an object

    def epsilon(self) -> ExponentialEpsilon:
        return ExponentialEpsilon(self.epsilon_start, self.epsilon_end, self.epsilon_decay)


class GoalSampler:
    """Draws the goals of training episodes (Gaven et al. 2025).

    With probability epsilon an arm is drawn uniformly among the explored ones; otherwise among
    the exploited ones in proportion to signal(now, delayed), uniformly while all these weights
    are 0. The goal is uniform inside the arm.

    goals: the goal space; only its length and `categories` are read.
    estimator: gives competence per arm; None if the sampler learns nothing (weights stay 0). Its
        competence may change in its own update only, which the sampler calls.
    signal: competence to weights; unused without estimator.
    schedule: epsilon by number of updates.
    rng: owned by the sampler from here on, and part of its state.
    arms: "goals", each goal is an arm, or "categories", each category is one, and the impossible
        one is only explored.
    """

    def __init__(
        self,
        goals: Goals,
        estimator: CompetenceEstimator | None,
        signal: Signal,
        schedule: Schedule,
        rng: np.random.Generator,
        arms: Literal["goals", "categories"] = "goals",
    ) -> None:
        self.estimator = estimator
        self.arms = Arms.each_goal(goals) if arms == "goals" else Arms.each_category(goals)
        self._signal = signal
        self._schedule = schedule
        self._rng = rng
        self._step = 0
        self._exploitable = np.isin(np.arange(len(self.arms)), self.arms.exploited)
        self._choice = WeightedChoice(len(self.arms))
        self._refresh(slice(None))

    @property
    def epsilon(self) -> float:
        """Probability that the next draw explores."""
        return self._schedule(self._step)

    def sample(self, n: int) -> np.ndarray:
        """`n` goals with replacement: positions in the goal space, (n,) int64."""
        exploring = self._rng.random(n) < self.epsilon
        n_exploring = int(exploring.sum())
        arms = np.empty(n, dtype=np.int64)
        arms[exploring] = self._uniform(self.arms.explored, n_exploring)
        arms[~exploring] = self._exploit(n - n_exploring)
        return self.arms.draw_goals(arms, self._rng)

    def _exploit(self, n: int) -> np.ndarray:
        if self._choice.total > 0.0:
            return self._choice.draw(self._rng, n)
        return self._uniform(self.arms.exploited, n)

    def _uniform(self, arms: np.ndarray, n: int) -> np.ndarray:
        return arms[self._rng.integers(len(arms), size=n)]

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, (n_goals,) float64, sums to one."""
        per_arm = np.zeros(len(self.arms))
        per_arm[self.arms.explored] += self.epsilon / len(self.arms.explored)
        if self._choice.total > 0.0:
            per_arm += (1.0 - self.epsilon) * self._choice.weights / self._choice.total
        else:
            per_arm[self.arms.exploited] += (1.0 - self.epsilon) / len(self.arms.exploited)
        return self.arms.spread(per_arm)

    def update(self, outcomes: Outcomes) -> None:
        """Once per policy update, with the episodes finished since: epsilon moves a step on."""
        self._step += 1
        if self.estimator is not None:
            self.estimator.update(outcomes)
            self._refresh(self.estimator.changed_arms())

    def _refresh(self, arms: np.ndarray | slice) -> None:
        """Weights of `arms` from their competence; others keep theirs."""
        if self.estimator is None:
            return
        now, delayed = self.estimator.competence()
        weights = self._signal(now[arms], delayed[arms])
        self._choice.set(arms, np.where(self._exploitable[arms], weights, 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Step, generator and estimator, as numpy arrays and JSON-able values."""
        estimator = {} if self.estimator is None else self.estimator.state_dict()
        return {"step": self._step, "rng": self._rng.bit_generator.state, "estimator": estimator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; the draws go on as if never interrupted."""
        self._step = int(state["step"])
        self._rng.bit_generator.state = state["rng"]
        if self.estimator is not None:
            self.estimator.load_state_dict(state["estimator"])
            self._refresh(slice(None))
