"""MoPPS: goals whose success rate, drawn from what is believed of it, is nearest to one half."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen
from magellan.samplers.selection import nearest_draw


class MoppsSettings(Section):
    """The sampler `mopps`."""

    prior: float = Field(1.0, ge=1, le=1e6, description="Successes, and failures, to begin with.")
    discount: Fraction = Field(1.0, description="Lambda: an episode's weight at the goal's next.")
    candidates: Count = Field(16, description="Goals of which the nearest is practised.")


class Mopps(Rule):
    """A Beta belief for each goal; an episode of a goal moves its own."""

    def __init__(self, settings: MoppsSettings) -> None:
        self._settings = settings

    def start(self, n_arms: int) -> None:
        self.won, self.lost = np.full((2, n_arms), self._settings.prior)

    def hear(self, arm: int, success: float, advantage: float) -> None:
        for counts, more in ((self.won, success), (self.lost, 1.0 - success)):
            kept = self._settings.discount * (counts[arm] - self._settings.prior)
            counts[arm] = self._settings.prior + kept + more

    def weights(self, seen: Seen) -> np.ndarray:
        return nearest_draw(self.won, self.lost, 0.5, self._settings.candidates)


@register_sampler("mopps", "MoPPS", settings=MoppsSettings, epsilon=False)
def build(parts: SamplerParts, settings: MoppsSettings) -> GoalSampler:
    """Model predictive prompt selection (Qu et al. 2025, arXiv 2507.04632): a Thompson draw.

    Authors' code: recipe/ours/mopps.py; constants of config/our_trainer.yaml, and 16 candidates as
    in scripts/math. There the nearest B of 16 B are played 8 times each; here each draw is the
    nearest of 16, played once, and the chance of that is worked out instead of drawn.
    """
    return GoalSampler(parts.goals, None, Mopps(settings), ConstantEpsilon(0.0), parts.rng)
