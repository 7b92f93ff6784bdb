"""One window of outcomes per category of goals: the expert's estimator, of EK-Online-ALP."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magellan.competence.base import NOTHING, Outcomes
from magellan.competence.windows import OutcomeWindows
from magellan.littlezoo.goals import CATEGORIES, IMPOSSIBLE


class ExpertBuckets(OutcomeWindows):
    """Success rate of each category over its last outcomes (Gaven et al. 2025, EK-Online-ALP).

    Arms are the five categories in the order of CATEGORIES. The expert knows which goals are
    impossible: outcomes on them are not kept, so that category's competence stays 0.

    categories_at: positions of goals (m,) to their categories (m,), as positions in CATEGORIES.
    drop_standing_starts: forget episodes that started on an object, as the released code does:
        its buckets list prompts that stand on nothing, so such an episode is found in none.
    """

    def __init__(
        self,
        categories_at: Callable[[np.ndarray], np.ndarray],
        window: int = 100,
        drop_standing_starts: bool = False,
    ) -> None:
        super().__init__(len(CATEGORIES), window)
        self._categories_at = categories_at
        self._drop_standing_starts = drop_standing_starts

    def update(self, outcomes: Outcomes) -> None:
        categories = self._categories_at(outcomes.goals)
        kept = categories != IMPOSSIBLE
        if self._drop_standing_starts:
            kept &= outcomes.standing_on == NOTHING
        self._append(categories[kept], outcomes.success[kept])
