"""Sliding windows of outcomes, newer half against older: per goal, and per category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.base import ArmEstimator, Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.errors import InputError
from magellan.core.parsing import checked_numbers
from magellan.core.settings import Section
from magellan.worlds import NOTHING, GoalSet


class WindowSettings(Section):
    """The estimator `per_goal`, which drives `online`."""

    window: int = Field(100, ge=2, le=10**6, description="Outcomes kept per goal, or per category.")


class OutcomeWindows(ArmEstimator):
    """The last `window` outcomes of each arm in ring buffers, and success rates of their halves.

    k outcomes are split at k // 2: delayed competence is the mean of the older half, current
    competence the mean of the newer half, which gets the odd one; both are 0 below two answers. A
    group of answers is one outcome; halves are means over their answers, and those of a single
    group are equal.
    Arms get a row at their first outcome, and only arms with new outcomes are recomputed: time and
    memory (8 `window` + 24 bytes per practised arm) do not depend on the number of arms.

    A subclass maps outcomes to arms: its `update` calls `_append`.
    """

    def __init__(self, n_arms: int, window: int) -> None:
        self._n_arms, self._window = n_arms, window
        self._changed = np.empty(0, dtype=np.int64)
        self._clear()

    def _clear(self) -> None:
        """Drop all outcomes; row 0 stands for all arms without outcomes, with competence 0."""
        self._row_of: dict[int, int] = {}
        # Successes and answers of each outcome.
        self._ring: np.ndarray = np.zeros((1, self._window, 2), dtype=np.int32)
        # Outcomes so far; the next goes to slot seen % window.
        self._seen: np.ndarray = np.zeros(1, dtype=np.int64)
        self._now: np.ndarray = np.zeros(1)
        self._delayed: np.ndarray = np.zeros(1)

    def known(self) -> np.ndarray:
        """Arms with outcomes, in the order of their first one."""
        return np.fromiter(self._row_of, np.int64, len(self._row_of))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(which.tolist())
        return self._now[rows], self._delayed[rows]

    def changed(self) -> np.ndarray:
        return self._changed

    def _rows(self, arms: list[int]) -> list[int]:
        return [self._row_of.get(arm, 0) for arm in arms]

    def _add_rows(self, arms: list[int]) -> None:
        """Add a row for each arm without one; storage doubles when full."""
        for arm in arms:
            self._row_of.setdefault(arm, len(self._row_of) + 1)
        needed = len(self._row_of) + 1
        if needed > len(self._seen):
            more = max(needed, 2 * len(self._seen)) - len(self._seen)
            self._ring = np.pad(self._ring, ((0, more), (0, 0), (0, 0)))
            self._seen = np.pad(self._seen, (0, more))
            self._now = np.pad(self._now, (0, more))
            self._delayed = np.pad(self._delayed, (0, more))

    def _append(self, arms: np.ndarray, success: np.ndarray, answers: np.ndarray) -> None:
        """Add outcomes (m,), oldest first; an arm may occur more than once."""
        self._add_rows(arms.tolist())
        rows = self._rows(arms.tolist())
        outcomes = np.stack([np.rint(success * answers), answers], axis=1).astype(np.int32)
        for row, outcome in zip(rows, outcomes, strict=True):
            self._ring[row, self._seen[row] % self._window] = outcome
            self._seen[row] += 1
        self._changed = np.unique(arms)
        self._recompute(np.array(self._rows(self._changed.tolist()), dtype=np.int64))

    def _recompute(self, rows: np.ndarray) -> None:
        """Recompute the success rates of both halves for `rows` (k,)."""
        count = np.minimum(self._seen[rows], self._window)
        oldest, half = (self._seen[rows] - count) % self._window, count // 2
        slots = (oldest[:, None] + np.arange(self._window)) % self._window
        sums = np.zeros((len(rows), self._window + 1, 2), dtype=np.int64)
        row = np.arange(len(rows))
        np.cumsum(self._ring[rows[:, None], slots], axis=1, out=sums[:, 1:])
        older, both = sums[row, half], sums[row, count]
        (newer, answers), rated = (both - older).T, both[:, 1] >= 2
        self._now[rows] = np.where(rated, newer / np.maximum(answers, 1), 0.0)
        # A single outcome has no older half to compare with.
        delayed = older[:, 0] / np.maximum(older[:, 1], 1)
        self._delayed[rows] = np.where(half > 0, delayed, self._now[rows])

    def state_dict(self) -> dict[str, Any]:
        """Arms with outcomes (k,) int64, rings (k, window) int32 and counts (k,) int64."""
        used = slice(1, len(self._row_of) + 1)
        return {
            "n_arms": self._n_arms,
            "arms": self.known(),
            "ring": self._ring[used, :, 0].copy(),
            "answers": self._ring[used, :, 1].copy(),
            "seen": self._seen[used].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        checked_numbers(state["n_arms"], "n_arms", (), self._n_arms, self._n_arms)
        solved = checked_numbers(state["ring"], "ring", (None, self._window))
        answers = state.get("answers", np.ones_like(solved))
        answers = checked_numbers(answers, "answers", solved.shape, solved, 2**31 - 1)
        arms = checked_numbers(state["arms"], "arms", (len(solved),), 0, self._n_arms - 1).tolist()
        seen = checked_numbers(state["seen"], "seen", (len(solved),), 1)
        if len({*arms}) < len(arms):
            raise InputError("outcome windows: duplicate arms")
        self._clear()
        self._restore(arms, np.stack([solved, answers], axis=2), seen)

    def _restore(self, arms: list[int], ring: np.ndarray, seen: np.ndarray) -> None:
        """Fill empty windows with the outcomes of arms (k,): rings (k, window), counts (k,)."""
        self._add_rows(arms)
        rows = np.arange(1, len(ring) + 1)
        self._ring[rows], self._seen[rows] = ring, seen
        self._changed = self.known()
        self._recompute(rows)


class PerGoalWindows(OutcomeWindows):
    """Success rate of each goal over its own last outcomes (Gaven et al. 2025, Online-ALP).

    Arms are the goals. Goals outside the training space have 0, as in the paper.
    """

    def __init__(self, goals: GoalSet, window: int = 100) -> None:
        super().__init__(len(goals), window)
        self._goals = goals

    def update(self, outcomes: Outcomes) -> None:
        self._append(outcomes.goals, outcomes.success, outcomes.answers)

    def set_goal_space(self, goals: GoalSet) -> None:
        """Goals in both spaces keep their outcomes; new ones have competence 0."""
        numbers = goals.positions_in(self._goals, self.known())
        stay = np.flatnonzero(numbers >= 0)
        ring, seen = self._ring[stay + 1], self._seen[stay + 1]
        self._goals, self._n_arms = goals, len(goals)
        self._clear()
        self._restore(numbers[stay].tolist(), ring, seen)


@register_estimator("per_goal", "Windows per goal", WindowSettings, arms="goals")
def build_per_goal(parts: EstimatorParts, settings: WindowSettings) -> PerGoalWindows:
    """One window per goal of the training space."""
    return PerGoalWindows(parts.goals, settings.window)


class ExpertBuckets(OutcomeWindows):
    """Success rate of each category over its last outcomes (Gaven et al. 2025, EK-Online-ALP).

    Arms are the categories of the world, in order. The expert knows which goals are impossible:
    outcomes on them are dropped, so that category's competence stays 0. Any goal, unseen ones
    included, has the competence of its category.

    drop_standing_starts: drop episodes that started on an object, as the released code does: its
        buckets list only prompts that stand on nothing.
    """

    arms = "categories"

    def __init__(
        self, goals: GoalSet, window: int = 100, drop_standing_starts: bool = False
    ) -> None:
        super().__init__(len(goals.sizes), window)
        self._goals = goals
        self._drop_standing_starts = drop_standing_starts

    def set_goal_space(self, goals: GoalSet) -> None:
        """Categories keep their windows."""
        self._goals = goals

    def update(self, outcomes: Outcomes) -> None:
        categories = self._goals.categories_at(outcomes.goals)
        rows = self._goals.feasible[categories]
        if self._drop_standing_starts:
            rows &= outcomes.standing_on == NOTHING
        self._append(categories[rows], outcomes.success[rows], outcomes.answers[rows])


class ExpertBucketsSettings(WindowSettings):
    """The estimator `expert_buckets`, which drives `ek_online`."""

    drop_standing_starts: bool = Field(
        False, description="Ignore episodes that start on an object (defect B13)."
    )


@register_estimator(
    "expert_buckets", "Windows per category", ExpertBucketsSettings, arms="categories"
)
def build_expert_buckets(parts: EstimatorParts, settings: ExpertBucketsSettings) -> ExpertBuckets:
    """One window per feasible category."""
    return ExpertBuckets(parts.goals, settings.window, settings.drop_standing_starts)
