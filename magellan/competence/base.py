"""What every competence estimator takes, outcomes, and gives, competence now and delayed.

An estimator speaks of *arms*, a partition of the goal space: one arm per goal (`per_goal`,
`learned`) or one per goal category (`expert_buckets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from magellan.errors import InputError

NOTHING = -1  # `standing_on` of an episode that started on bare ground


@dataclass(frozen=True)
class Outcomes:
    """Finished training episodes, oldest first.

    goals: (m,) int64, positions in the goal space.
    success: (m,) float, return of the episode, 0 or 1.
    standing_on: (m,) int8, scene index of the object the episode started on; -1, for
        nothing, is the default.

    Raises InputError if the lengths differ or a success is neither 0 nor 1.
    """

    goals: np.ndarray
    success: np.ndarray
    standing_on: np.ndarray = None  # type: ignore[assignment]  # an array after __post_init__

    def __post_init__(self) -> None:
        goals = np.asarray(self.goals, dtype=np.int64)
        success = np.asarray(self.success, dtype=np.float64)
        if self.standing_on is None:
            standing_on = np.full(goals.shape, NOTHING, dtype=np.int8)
        else:
            standing_on = np.asarray(self.standing_on, dtype=np.int8)
        if not goals.shape == success.shape == standing_on.shape == (goals.size,):
            shapes = goals.shape, success.shape, standing_on.shape
            raise InputError(
                f"outcomes: shapes of goals, success, standing_on {shapes}; must be flat and equal"
            )
        if not ((success == 0.0) | (success == 1.0)).all():
            raise InputError(f"outcomes: success {success.tolist()}; each must be 0 or 1")
        object.__setattr__(self, "goals", goals)
        object.__setattr__(self, "success", success)
        object.__setattr__(self, "standing_on", standing_on)

    def __len__(self) -> int:
        return len(self.goals)


class CompetenceEstimator(ABC):
    """Estimates the probability of success of every arm, now and some updates ago."""

    cost: int = 0
    """Episodes played so far only to estimate competence; none where practice is enough."""

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Learn from the episodes, maybe none, finished since the last policy update."""

    @abstractmethod
    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """Now and delayed: two float64 arrays (n_arms,) in [0, 1], to be read and not written."""

    def changed_arms(self) -> np.ndarray | slice:
        """Arms whose competence the last `update` may have changed, as index into `competence()`.

        All of them unless an estimator knows better; a sampler recomputes only their weights.
        """
        return slice(None)

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that changes during training, as numpy arrays and JSON-able values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; InputError if that was for another goal space."""
