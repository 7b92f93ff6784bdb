"""The interface of competence estimators: outcomes in, competence now and delayed out.

An estimator predicts for *arms*, a partition of the goal space: one arm per goal (`per_goal`,
`learned`) or one per goal category (`expert_buckets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from magellan.core.errors import InputError, shown
from magellan.worlds.base import NOTHING

if TYPE_CHECKING:
    from magellan.competence.arms import Arms
    from magellan.worlds import GoalSet

NEITHER = -1
"""`Outcomes.explored` if unknown."""


@dataclass(frozen=True)
class Outcomes:
    """Finished training episodes, oldest first.

    goals: (m,) int64, positions in the goal space.
    success: (m,) float, return of the episode, 0 or 1.
    standing_on: (m,) int8, scene index of the object the episode started on; -1: none, the default.
    explored: (m,) int8, 1: the goal was drawn to explore, 0: to exploit, -1: unknown, the default.
    advantage: (m,) float64, such as |return - value|; None: not supplied by the training loop.

    Raises InputError if lengths differ, a success is neither 0 nor 1, or an advantage not finite.
    """

    goals: np.ndarray
    success: np.ndarray
    standing_on: np.ndarray = None  # type: ignore[assignment]  # an array after __post_init__
    explored: np.ndarray = None  # type: ignore[assignment]  # so is this
    advantage: np.ndarray | None = None

    def __post_init__(self) -> None:
        goals = np.asarray(self.goals, dtype=np.int64)
        success = np.asarray(self.success, dtype=np.float64)
        standing_on = _int8_or_default(self.standing_on, NOTHING, goals.shape)
        explored = _int8_or_default(self.explored, NEITHER, goals.shape)
        shapes = goals.shape, success.shape, standing_on.shape, explored.shape
        if set(shapes) != {(goals.size,)}:
            raise InputError(
                f"outcomes: shapes of goals, success, standing_on, explored {shapes}; must be flat "
                "and equal"
            )
        others = success[(success != 0.0) & (success != 1.0)]
        if len(others):
            raise InputError(f"outcomes: success {others[0]:g}; each must be 0 or 1")
        if self.advantage is not None:
            advantage = np.asarray(self.advantage, dtype=np.float64)
            valid = np.isfinite(advantage) & (advantage >= 0)
            if advantage.shape != goals.shape or not valid.all():
                raise InputError(
                    f"outcomes: advantage {shown(advantage.tolist())}; must be {goals.size} finite "
                    "numbers >= 0"
                )
            object.__setattr__(self, "advantage", advantage)
        object.__setattr__(self, "goals", goals)
        object.__setattr__(self, "success", success)
        object.__setattr__(self, "standing_on", standing_on)
        object.__setattr__(self, "explored", explored)

    def __len__(self) -> int:
        return len(self.goals)


def _int8_or_default(values: np.ndarray | None, default: int, shape: tuple) -> np.ndarray:
    return np.full(shape, default, np.int8) if values is None else np.asarray(values, np.int8)


class CompetenceEstimator(ABC):
    """Estimates the probability of success of arms, now and some updates ago.

    Its *candidates* are the arms that exploitation chooses among: all, or a subset of its choice. A
    candidate is given by its index in `candidates()`, or by its arm number where that is None.

    An estimator works the same whether it drives a sampler or only observes a run.
    """

    cost: int = 0
    """Episodes played so far only to estimate competence; 0 if practice is enough."""
    arms: Literal["goals", "categories"] | Arms = "goals"
    """Its arms: each goal, each category, or another partition."""

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Learn from the episodes, possibly none, finished since the last policy update."""

    def candidates(self) -> np.ndarray | None:
        """Arms of the candidates, int64 (n,); None: all arms. A new array after each change."""
        return None

    @abstractmethod
    def known(self) -> np.ndarray:
        """Candidates whose competence may differ from 0, int64 (k,)."""

    @abstractmethod
    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Now and delayed competence of candidates `which` (m,): float64 (m,) each, in [0, 1]."""

    def uncertainty(self, which: np.ndarray) -> np.ndarray | None:
        """Standard deviation of competence now, float64 (m,); None if there is none."""
        return None

    @abstractmethod
    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Now and delayed competence of any goals, unseen ones included: float64 (m,) each.

        goals: the training goal space itself, or another one.
        positions: int64 (m,), positions in `goals`.
        """

    def goals_to_evaluate(self, episodes: int) -> np.ndarray | None:
        """Goals to play only to estimate competence, after this many training episodes.

        Positions in the training goal space, int64 (n,); None: none. `record_evaluation` gets the
        outcomes before the next `update`.
        """
        return None

    def record_evaluation(self, outcomes: Outcomes) -> None:  # noqa: B027  # most need none
        """Take the outcomes of `goals_to_evaluate`, in the same order.

        Competence must not change before the next `update`.
        """

    def losses(self) -> dict[str, float]:
        """Losses of the last update by name; empty if nothing was fitted."""
        return {}

    def changed(self) -> np.ndarray:
        """Candidates whose competence the last `update` may have changed, int64 (k,).

        By default all known ones. The sampler recomputes only their weights.
        """
        return self.known()

    def set_goal_space(self, goals: GoalSet) -> None:
        """Switch to another training goal space, keeping what is known of goals in both.

        goals: the new space. Outcomes, candidates and competence now refer to its positions;
            outcomes of running episodes with former goals never arrive.

        A run whose goals change refuses an estimator without this method before the first episode.
        """
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All mutable state, as numpy arrays and JSON-serialisable values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; InputError if it belongs to another goal space."""
