"""Arms: the partition of a goal space that a sampler chooses among before it chooses a goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from magellan.errors import InputError
from magellan.littlezoo.goals import CATEGORIES, IMPOSSIBLE


class Goals(Protocol):
    """What samplers need of a goal space: size, and categories (n,) as positions in CATEGORIES."""

    categories: np.ndarray

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Arms:
    """A partition of the goals.

    of_goal: (n_goals,) int64, the arm of each goal.
    explored: arms drawn uniformly when exploring, int64.
    exploited: arms that learning progress chooses among, int64.
    _by_arm: (n_goals,) goals ordered by arm; _first, _size: (n_arms,) where in it each arm begins
        and how many goals it has.
    """

    of_goal: np.ndarray
    explored: np.ndarray
    exploited: np.ndarray
    _by_arm: np.ndarray
    _first: np.ndarray
    _size: np.ndarray

    @classmethod
    def each_goal(cls, goals: Goals) -> Arms:
        """Every goal is its own arm, explored and exploited."""
        arms = np.arange(len(goals))
        return cls(arms, arms, arms, arms, arms, np.ones(len(goals), dtype=np.int64))

    @classmethod
    def each_category(cls, goals: Goals) -> Arms:
        """One arm per category: all are explored, the feasible ones exploited.

        Categories without goals are left out of both. InputError if no goal is feasible.
        """
        of_goal = np.asarray(goals.categories, dtype=np.int64)
        size = np.bincount(of_goal, minlength=len(CATEGORIES))
        explored = np.flatnonzero(size)
        exploited = explored[explored != IMPOSSIBLE]
        if len(exploited) == 0:
            raise InputError(
                "goal space: all goals are impossible; choosing categories needs a feasible one"
            )
        return cls(
            of_goal,
            explored,
            exploited,
            np.argsort(of_goal, kind="stable"),
            np.cumsum(size) - size,
            size,
        )

    def __len__(self) -> int:
        return len(self._size)

    def draw_goals(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One goal, uniform inside its arm, for each of `arms` (n,): positions (n,) int64."""
        return self._by_arm[self._first[arms] + rng.integers(self._size[arms])]

    def spread(self, per_arm: np.ndarray) -> np.ndarray:
        """Probability of each arm (n_arms,) to that of each goal (n_goals,), uniform in its arm."""
        return (per_arm / np.maximum(self._size, 1))[self.of_goal]
