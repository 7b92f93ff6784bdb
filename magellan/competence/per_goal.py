"""One window of outcomes per goal: the estimator of Online-ALP."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.competence.windows import OutcomeWindows, WindowSettings
from magellan.worlds import GoalSet


class PerGoalWindows(OutcomeWindows):
    """Success rate of each goal over its own last outcomes (Gaven et al. 2025, Online-ALP).

    Arms are the goals. Goals outside the training space have 0, as in the paper.
    """

    def __init__(self, goals: GoalSet, window: int = 100) -> None:
        super().__init__(len(goals), window)
        self._goals = goals

    def update(self, outcomes: Outcomes) -> None:
        self._append(outcomes.goals, outcomes.success)

    def set_goal_space(self, goals: GoalSet) -> None:
        """Goals in both spaces keep their outcomes; new ones have competence 0."""
        self._renumber(len(goals), goals.positions_in(self._goals, self.known()))
        self._goals = goals

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if goals is not self._goals:
            return np.zeros(len(positions)), np.zeros(len(positions))
        return self.competence(np.asarray(positions))


class PerGoalSettings(WindowSettings):
    """The estimator `per_goal`, which drives `online`."""


@register_estimator("per_goal", "Windows per goal", PerGoalSettings)
def build(parts: EstimatorParts, settings: PerGoalSettings) -> PerGoalWindows:
    """One window per goal of the training space."""
    return PerGoalWindows(parts.goals, settings.window)
