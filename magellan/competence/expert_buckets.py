"""One window of outcomes per goal category: the estimator of EK-Online-ALP."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.competence.windows import OutcomeWindows, WindowSettings
from magellan.worlds import NOTHING, GoalSet


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
        self._append(categories[rows], outcomes.success[rows])

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.competence(goals.categories_at(np.asarray(positions)))


class ExpertBucketsSettings(WindowSettings):
    """The estimator `expert_buckets`, which drives `ek_online`."""

    drop_standing_starts: bool = Field(
        False, description="Ignore episodes that start on an object (defect B13)."
    )


@register_estimator("expert_buckets", "Windows per category", ExpertBucketsSettings)
def build(parts: EstimatorParts, settings: ExpertBucketsSettings) -> ExpertBuckets:
    """One window per feasible category."""
    return ExpertBuckets(parts.goals, settings.window, settings.drop_standing_starts)
