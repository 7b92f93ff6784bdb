"""Outcomes and estimates by hand."""

import numpy as np

from magellan.competence import Outcomes
from magellan.samplers.conformance import CompetenceOfGoalNumber


def outcomes(*pairs, standing_on=None):
    """Episodes as (goal, success), oldest first; all start on bare ground unless said otherwise."""
    goals, success = np.array(pairs).T if pairs else (np.empty(0), np.empty(0))
    return Outcomes(goals, success, np.array(standing_on or [-1] * len(pairs)))


class Given(CompetenceOfGoalNumber):
    def __init__(self, now, delayed, uncertainty=None, arms="goals"):
        super().__init__(len(now))
        self.now, self.delayed, self.arms = np.array(now), np.array(delayed), arms
        self._uncertainty = None if uncertainty is None else np.array(uncertainty)

    def competence(self, which):
        return self.now[which], self.delayed[which]

    def uncertainty(self, which):
        return None if self._uncertainty is None else self._uncertainty[which]
