"""What every competence estimator takes, outcomes, and gives, competence now and delayed.

An estimator speaks of *arms*, a partition of the goal space: one arm per goal (`per_goal`,
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
"""`Outcomes.explored` where a sampler does not tell."""


@dataclass(frozen=True)
class Outcomes:
    """Finished training episodes, oldest first.

    goals: (m,) int64, positions in the goal space.
    success: (m,) float, return of the episode, 0 or 1.
    standing_on: (m,) int8, scene index of the object the episode started on; -1, for
        nothing, is the default.
    explored: (m,) int8, 1 where the goal was drawn to explore, 0 where the sampler exploited; -1,
        for neither, is the default.
    advantage: (m,) float64, what the learner makes of the episode, such as |return - value|, for
        estimators that want it; None, the default, where a training loop does not tell.

    Raises InputError if the lengths differ, a success is neither 0 nor 1, or an advantage is not
    finite.
    """

    goals: np.ndarray
    success: np.ndarray
    standing_on: np.ndarray = None  # type: ignore[assignment]  # an array after __post_init__
    explored: np.ndarray = None  # type: ignore[assignment]  # so is this
    advantage: np.ndarray | None = None

    def __post_init__(self) -> None:
        goals = np.asarray(self.goals, dtype=np.int64)
        success = np.asarray(self.success, dtype=np.float64)
        standing_on = _or(NOTHING, self.standing_on, goals)
        explored = _or(NEITHER, self.explored, goals)
        shapes = goals.shape, success.shape, standing_on.shape, explored.shape
        if set(shapes) != {(goals.size,)}:
            raise InputError(
                f"outcomes: shapes of goals, success, standing_on, explored {shapes}; must be flat "
                "and equal"
            )
        if not ((success == 0.0) | (success == 1.0)).all():
            raise InputError(f"outcomes: success {success.tolist()}; each must be 0 or 1")
        if self.advantage is not None:
            advantage = np.asarray(self.advantage, dtype=np.float64)
            if advantage.shape != goals.shape or not np.isfinite(advantage).all():
                raise InputError(
                    f"outcomes: advantage {shown(advantage.tolist())}; must be {goals.size} finite "
                    "numbers"
                )
            object.__setattr__(self, "advantage", advantage)
        object.__setattr__(self, "goals", goals)
        object.__setattr__(self, "success", success)
        object.__setattr__(self, "standing_on", standing_on)
        object.__setattr__(self, "explored", explored)

    def __len__(self) -> int:
        return len(self.goals)


def _or(default: int, given: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    """What is given, or the default for each of `like`, int8."""
    return np.full(like.shape, default, np.int8) if given is None else np.asarray(given, np.int8)


class CompetenceEstimator(ABC):
    """Estimates the probability of success of arms, now and some updates ago.

    It speaks of *candidates*, the arms that exploitation chooses among: all arms, or fewer of its
    own choice. A candidate is an arm's number, or its place in `candidates()` where there is one.

    An estimator drives a sampler or only watches a run; it cannot tell which. It never changes
    what it watches.
    """

    cost: int = 0
    """Episodes played so far only to estimate competence; none where practice is enough."""
    arms: Literal["goals", "categories"] | Arms = "goals"
    """What it speaks of: each goal, each category, or a partition of its own."""

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Learn from the episodes, maybe none, finished since the last policy update."""

    def candidates(self) -> np.ndarray | None:
        """Arms of the candidates, int64 (n,); None: all arms. Another array after each change."""
        return None

    @abstractmethod
    def known(self) -> np.ndarray:
        """Candidates whose competence may differ from 0, int64 (k,); of all others it is 0."""

    @abstractmethod
    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Now and delayed of the candidates `which` (m,): two float64 arrays (m,) in [0, 1]."""

    def uncertainty(self, which: np.ndarray) -> np.ndarray | None:
        """Standard deviation of what `competence` says of now, float64 (m,); None: untold."""
        return None

    @abstractmethod
    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Now and delayed of any goals, also unseen ones: two float64 arrays (m,) in [0, 1].

        goals: the training goal space itself, or other goals.
        positions: int64 (m,), of goals in it.
        """

    def wanted(self, episodes: int) -> np.ndarray | None:
        """Goals to be played now, after so many training episodes, only to estimate competence.

        Positions in the training goal space, int64 (n,); None: nothing. The outcomes come back
        through `evaluated` before the next `update`.
        """
        return None

    def evaluated(self, outcomes: Outcomes) -> None:  # noqa: B027  # most ask for nothing
        """Take the outcomes of the episodes that `wanted` asked for, in the order asked for.

        Competence may not change before the next `update`.
        """

    def losses(self) -> dict[str, float]:
        """Losses of the last update by name; none where nothing is fitted, or nothing yet."""
        return {}

    def changed(self) -> np.ndarray:
        """Candidates whose competence the last `update` may have changed, int64 (k,).

        All known ones unless an estimator can tell; a sampler weighs only these anew.
        """
        return self.known()

    def set_goal_space(self, goals: GoalSet) -> None:
        """Go on with another goal space: what is known of goals that stay, and of new ones.

        goals: the training goal space from here on. Outcomes, candidates and competence are of
            its positions; running episodes with former goals are never told.

        An estimator without this method is refused before the first episode where the goals of a
        run change.
        """
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that changes during training, as numpy arrays and JSON-able values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; InputError if that was for another goal space."""
