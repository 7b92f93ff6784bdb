"""Prioritized level replay: goals whose last episode surprised the critic, and stale ones."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Fraction, Positive, Section
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen
from magellan.samplers.selection import by_rank


class PlrSettings(Section):
    """The sampler `plr`."""

    temperature: Positive = Field(0.1, description="Of ranks; towards 0 the highest score alone.")
    staleness: Fraction = Field(0.1, description="Share of draws in proportion to an arm's age.")


class Plr(Rule):
    """Scores are |return - value| of an arm's last episode; arms never tried are left out."""

    wants_advantage = True

    def __init__(self, settings: PlrSettings) -> None:
        self._settings = settings

    def start(self, n_arms: int) -> None:
        self.score = np.zeros(n_arms)

    def hear(self, arm: int, success: float, advantage: float) -> None:
        self.score[arm] = advantage

    def weights(self, seen: Seen) -> np.ndarray:
        tried = seen.tries > 0
        if not tried.any():
            return np.zeros(len(tried))
        weights = np.zeros(len(tried))
        ranked = by_rank(self.score[tried], self._settings.temperature)
        age = seen.age[tried] / max(seen.age[tried].sum(), 1)
        share = self._settings.staleness
        weights[tried] = (1 - share) * ranked / ranked.sum() + share * age
        return weights


@register_sampler("plr", "PLR", settings=PlrSettings)
def build(parts: SamplerParts, settings: PlrSettings) -> GoalSampler:
    """Prioritized level replay (Jiang et al. 2021, arXiv 2010.03934), with L1 value loss and ranks.

    There new levels come first and replay waits for all of them, which in a space with more goals
    than episodes is `random`. Here a new goal comes by exploration, as with the other samplers.
    """
    return GoalSampler(parts.goals, None, Plr(settings), parts.epsilon, parts.rng)
