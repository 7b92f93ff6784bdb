"""One window of outcomes per goal: the estimator of Online-ALP."""

from __future__ import annotations

from magellan.competence.base import Outcomes
from magellan.competence.windows import OutcomeWindows


class PerGoalWindows(OutcomeWindows):
    """Success rate of each goal over its own last outcomes (Gaven et al. 2025, Online-ALP).

    Arms are the goals.
    """

    def __init__(self, n_goals: int, window: int = 100) -> None:
        super().__init__(n_goals, window)

    def update(self, outcomes: Outcomes) -> None:
        self._append(outcomes.goals, outcomes.success)
