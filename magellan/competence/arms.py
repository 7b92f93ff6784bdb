"""Arms: a partition of the goal space, whose parts estimators predict and samplers choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from magellan.core.errors import InputError
from magellan.worlds import GoalSet


class Arms(ABC):
    """A partition of the goals.

    explored: arms drawn uniformly when exploring, int64; None: all.
    exploited: arms that exploitation chooses among, int64; None: all.
    """

    explored: np.ndarray | None = None
    exploited: np.ndarray | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a goal uniformly from each of `arms` (n,): positions int64 (n,)."""

    @abstractmethod
    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        """Arm of each goal; both int64 (n,)."""

    @abstractmethod
    def index_in(self, former: Any) -> np.ndarray:
        """Number of each arm in `former`, arms of the same type, int64 (n_arms,); -1: new."""

    @abstractmethod
    def spread(self, per_arm: np.ndarray, explored: np.ndarray | float = 0.0) -> np.ndarray:
        """Probability of each goal (n_goals,) from those of exploiting and exploring each arm."""


class EachGoal(Arms):
    """Every goal is its own arm, explored and exploited."""

    def __init__(self, goals: GoalSet) -> None:
        self._goals = goals

    def __len__(self) -> int:
        return len(self._goals)

    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return arms

    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        return goals

    def index_in(self, former: Any) -> np.ndarray:
        return former._goals.positions_in(self._goals, np.arange(len(self)))

    def spread(self, per_arm: np.ndarray, explored: np.ndarray | float = 0.0) -> np.ndarray:
        return per_arm + explored


class EachCategory(Arms):
    """One arm per category that has goals: all are explored, the feasible ones exploited.

    InputError if no goal is feasible.
    """

    def __init__(self, goals: GoalSet) -> None:
        self._goals = goals
        self.explored = np.flatnonzero(goals.sizes)
        self.exploited = self.explored[goals.feasible[self.explored]]
        if len(self.exploited) == 0:
            raise InputError(
                "goal space: all goals are impossible; choosing categories needs a feasible one"
            )

    def __len__(self) -> int:
        return len(self._goals.sizes)

    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        ranks = rng.integers(self._goals.sizes[arms])
        drawn = np.empty(len(arms), dtype=np.int64)
        for category in np.unique(arms):
            rows = arms == category
            drawn[rows] = self._goals.nth(int(category), ranks[rows])
        return drawn

    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        return self._goals.categories_at(goals).astype(np.int64)

    def index_in(self, former: Any) -> np.ndarray:
        return np.arange(len(self))

    def spread(self, per_arm: np.ndarray, explored: np.ndarray | float = 0.0) -> np.ndarray:
        per_goal = (per_arm + explored) / np.maximum(self._goals.sizes, 1)
        return per_goal[self._goals.categories_at(np.arange(len(self._goals)))]


class Regions(Arms):
    """Groups of goals that may change; none is empty.

    n_goals, n_arms: their numbers, n_arms <= n_goals.
    """

    def __init__(self, n_goals: int, n_arms: int) -> None:
        self._n_arms = n_arms
        self.assign(np.arange(n_goals) % n_arms)

    def assign(self, region: np.ndarray) -> None:
        """Assign each goal a region 0..n_arms-1, int64 (n_goals,)."""
        self.region = region
        self.sizes = np.bincount(region, minlength=self._n_arms)
        self._order = np.argsort(region, kind="stable")
        self._begins = np.cumsum(self.sizes) - self.sizes

    def mean_of(self, values: np.ndarray) -> np.ndarray:
        """Mean of values (n_goals,) over the goals of each region, float64 (n_arms,)."""
        return np.bincount(self.region, weights=values, minlength=self._n_arms) / self.sizes

    def __len__(self) -> int:
        return self._n_arms

    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        ranks = (rng.random(len(arms)) * self.sizes[arms]).astype(np.int64)
        return self._order[self._begins[arms] + ranks]

    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        return self.region[goals]

    def index_in(self, former: Any) -> np.ndarray:
        return np.full(self._n_arms, -1)

    def spread(self, per_arm: np.ndarray, explored: np.ndarray | float = 0.0) -> np.ndarray:
        return ((per_arm + explored) / self.sizes)[self.region]
