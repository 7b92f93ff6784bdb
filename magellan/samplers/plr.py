"""Prioritized level replay: goals by rank of their last |return - value|, mixed with staleness."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Fraction, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import by_rank


class PlrSettings(Section):
    """The sampler `plr`."""

    temperature: Positive = Field(0.1, description="Of ranks; towards 0: the highest score only.")
    staleness: Fraction = Field(0.1, description="rho: share of draws in proportion to age.")


@register_sampler("plr", "PLR", settings=PlrSettings, explores="goals")
class Plr(Rule):
    """Prioritized level replay (Jiang et al. 2021, arXiv 2010.03934), with L1 value loss and ranks.

    P = (1 - rho) P_score + rho P_stale over tried arms; score: last |return - value|, of a group of
    answers the mean. There replay starts once every level was played, so with more goals than
    episodes it is `random`. Here new goals come from exploration, as in the other samplers.
    """

    wants_advantage = True

    def start(self, n_arms: int) -> None:
        self.score = np.zeros(n_arms)

    def observe(self, arm: int, success: float, advantage: float) -> None:
        self.score[arm] = advantage

    def weights(self, arms: ArmStats) -> np.ndarray:
        tried, weights = arms.tries > 0, np.zeros(len(arms.tries))
        if tried.any():
            # Rewards may have been rounded to float32, so equal scores differ.
            score = np.round(self.score[tried] / (self.score[tried].max() or 1.0), 5)
            score = by_rank(score, self.settings.temperature)
            stale = arms.age[tried] / max(arms.age[tried].sum(), 1)
            rho = self.settings.staleness
            weights[tried] = (1 - rho) * score / score.sum() + rho * stale
        return weights
