"""The interface of competence estimators: outcomes in, competence now and delayed out.

An estimator predicts for *arms*, a partition of the goal space: one arm per goal (`per_goal`,
`learned`) or one per goal category (`expert_buckets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from magellan.core.errors import InputError, shown
from magellan.worlds.base import NOTHING

if TYPE_CHECKING:
    from magellan.competence.arms import Arms
    from magellan.worlds import GoalSet

NEITHER = -1
"""`Outcomes.explored` if unknown."""


class Group(NamedTuple):
    """All answers to one goal in one update of a curriculum; in a run, one episode.

    answers: their number n.
    success: share of them that succeeded, k / n.
    reward: their mean reward.
    spread: largest minus smallest reward.
    advantage: mean |reward - baseline|, by default the mean of the group; NaN if there is none.
    """

    answers: int
    success: float
    reward: float
    spread: float
    advantage: float

    @property
    def solved(self) -> int:
        """Number of successes k."""
        return round(self.answers * self.success)


@dataclass(frozen=True)
class Outcomes:
    """Finished training episodes, oldest first; or groups of answers, one row a goal.

    goals: (m,) int64, positions in the goal space.
    success: (m,) float, return of the episode, 0 or 1; of a group, the share of its successes.
    standing_on: (m,) int8, scene index of the object the episode started on; -1: none, the default.
    explored: (m,) int8, 1: the goal was drawn to explore, 0: to exploit, -1: unknown, the default.
    advantage: (m,) float64, such as |return - value|; None: not supplied by the training loop.
    answers, reward, spread: (m,), see `Group`; by default 1, the success, and 0.

    Raises InputError if lengths differ, a success is no share of its answers, or an advantage not
    finite.
    """

    goals: np.ndarray
    success: np.ndarray
    standing_on: np.ndarray = None  # type: ignore[assignment]  # an array after __post_init__
    explored: np.ndarray = None  # type: ignore[assignment]  # so are this and the last three
    advantage: np.ndarray | None = None
    answers: np.ndarray = None  # type: ignore[assignment]
    reward: np.ndarray = None  # type: ignore[assignment]
    spread: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        goals = np.asarray(self.goals, dtype=np.int64)
        success = np.asarray(self.success, dtype=np.float64)
        columns = {
            "goals": goals,
            "success": success,
            "standing_on": _or_default(self.standing_on, NOTHING, np.int8, goals),
            "explored": _or_default(self.explored, NEITHER, np.int8, goals),
            "answers": _or_default(self.answers, 1, np.int64, goals),
            "reward": success if self.reward is None else np.asarray(self.reward, np.float64),
            "spread": _or_default(self.spread, 0.0, np.float64, goals),
        }
        shapes = tuple(column.shape for column in columns.values())
        if set(shapes) != {(goals.size,)}:
            raise InputError(
                f"outcomes: shapes of {', '.join(columns)} {shapes}; must be flat and equal"
            )
        solved = np.rint(success * columns["answers"])
        shares = (solved / columns["answers"] == success) & (success >= 0) & (success <= 1)
        if not shares.all():
            raise InputError(f"outcomes: success {success[~shares][0]:g}; each must be 0 or 1")
        if self.advantage is not None:
            advantage = np.asarray(self.advantage, dtype=np.float64)
            valid = np.isfinite(advantage) & (advantage >= 0)
            if advantage.shape != goals.shape or not valid.all():
                raise InputError(
                    f"outcomes: advantage {shown(advantage.tolist())}; must be {goals.size} finite "
                    "numbers >= 0"
                )
            columns["advantage"] = advantage
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.goals)

    def groups(self) -> Iterator[Group]:
        """Each row as a `Group`."""
        advantage = np.full(len(self), np.nan) if self.advantage is None else self.advantage
        columns = self.answers, self.success, self.reward, self.spread, advantage
        return map(Group, *(column.tolist() for column in columns))


def _or_default(values: Any, default: float, kind: Any, goals: np.ndarray) -> np.ndarray:
    return np.full(goals.shape, default, kind) if values is None else np.asarray(values, kind)


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


class ArmEstimator(CompetenceEstimator):
    """An estimator that has a number for each goal of the training space, or for each category."""

    _goals: GoalSet

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """That of a goal's category, for any goal; or of the goal itself, 0 outside the space."""
        if self.arms == "categories":
            return self.competence(goals.categories_at(np.asarray(positions)))
        if goals is self._goals:
            return self.competence(np.asarray(positions))
        return np.zeros(len(positions)), np.zeros(len(positions))
