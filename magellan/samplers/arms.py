"""Arms: the partition of a goal space that a sampler chooses among before it chooses a goal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from magellan.core.errors import InputError


class Goals(Protocol):
    """What samplers need of a goal space; see `magellan.worlds.GoalSet`."""

    @property
    def sizes(self) -> np.ndarray: ...

    @property
    def feasible(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def categories_at(self, positions: np.ndarray) -> np.ndarray: ...

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray: ...

    def positions_in(self, other: Any, positions: np.ndarray) -> np.ndarray: ...


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
        """One goal, uniform inside its arm, for each of `arms` (n,): positions (n,) int64."""

    @abstractmethod
    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        """Arm of each goal; both int64 (n,)."""

    @abstractmethod
    def numbers_in(self, former: Any) -> np.ndarray:
        """What each arm was in arms of the same kind over other goals, int64 (n_arms,); -1: new."""

    @abstractmethod
    def spread(self, per_arm: np.ndarray) -> np.ndarray:
        """Probability of each arm (n_arms,) to that of each goal (n_goals,), uniform in its arm."""


class EachGoal(Arms):
    """Every goal is its own arm, explored and exploited."""

    def __init__(self, goals: Goals) -> None:
        self._goals = goals

    def __len__(self) -> int:
        return len(self._goals)

    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return arms

    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        return goals

    def numbers_in(self, former: Any) -> np.ndarray:
        return former._goals.positions_in(self._goals, np.arange(len(self)))

    def spread(self, per_arm: np.ndarray) -> np.ndarray:
        return per_arm


class EachCategory(Arms):
    """One arm per category: all are explored, the feasible ones exploited.

    Categories without goals are left out of both. InputError if no goal is feasible.
    """

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        filled = np.flatnonzero(goals.sizes)
        self.explored, self.exploited = filled, filled[goals.feasible[filled]]
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
            mine = arms == category
            drawn[mine] = self._goals.nth(int(category), ranks[mine])
        return drawn

    def arms_of(self, goals: np.ndarray) -> np.ndarray:
        return self._goals.categories_at(goals).astype(np.int64)

    def numbers_in(self, former: Any) -> np.ndarray:
        return np.arange(len(self))

    def spread(self, per_arm: np.ndarray) -> np.ndarray:
        per_goal = per_arm / np.maximum(self._goals.sizes, 1)
        return per_goal[self._goals.categories_at(np.arange(len(self._goals)))]
