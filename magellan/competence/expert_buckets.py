"""One window of outcomes per category of goals: the expert's estimator, of EK-Online-ALP."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Outcomes
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.competence.windows import OutcomeWindows, WindowSettings
from magellan.worlds import NOTHING, GoalSet


class ExpertBuckets(OutcomeWindows):
    """Success rate of each category over its last outcomes (Gaven et al. 2025, EK-Online-ALP).

    Arms are the categories of the world, in order. The expert knows which goals are
    impossible: outcomes on them are not kept, so that category's competence stays 0. Of any goal,
    unseen ones included, it predicts what its category has.

    goals: the training goal space.
    drop_standing_starts: forget episodes that started on an object, as the released code does:
        its buckets list prompts that stand on nothing, so such an episode is found in none.
    """

    arms = "categories"

    def __init__(
        self, goals: GoalSet, window: int = 100, drop_standing_starts: bool = False
    ) -> None:
        super().__init__(len(goals.sizes), window)
        self._goals = goals
        self._drop_standing_starts = drop_standing_starts

    def set_goal_space(self, goals: GoalSet) -> None:
        """Categories stay, and so does all that is known of them."""
        self._goals = goals

    def update(self, outcomes: Outcomes) -> None:
        categories = self._goals.categories_at(outcomes.goals)
        kept = self._goals.feasible[categories]
        if self._drop_standing_starts:
            kept &= outcomes.standing_on == NOTHING
        self._append(categories[kept], outcomes.success[kept])

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
