"""Outcomes by hand, over the goal space of `magellan.samplers.conformance`."""

from __future__ import annotations

import numpy as np

from magellan.competence import Outcomes
from magellan.samplers.conformance import (
    TEN_GOALS,
    FewGoals,
    estimator_of,
    exploration,
    make,
)

__all__ = ["TEN_GOALS", "FewGoals", "estimator_of", "exploration", "make", "outcomes"]


def outcomes(*pairs: tuple[int, int], standing_on: list[int] | None = None) -> Outcomes:
    """Episodes as (goal, success), oldest first; all start on bare ground unless said otherwise."""
    goals, success = np.array(pairs).T if pairs else (np.empty(0), np.empty(0))
    return Outcomes(goals, success, np.array(standing_on or [-1] * len(pairs)))
