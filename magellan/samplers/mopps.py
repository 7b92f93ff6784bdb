"""MoPPS: the goal whose success rate, drawn from its Beta posterior, is nearest to one half."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import nearest_draw


class MoppsSettings(Section):
    """The sampler `mopps`."""

    prior: float = Field(1.0, ge=1, le=1e6, description="Both parameters of the Beta prior.")
    discount: Fraction = Field(1.0, description="lambda: factor on a goal's counts per episode.")
    candidates: Count = Field(16, description="Goals drawn, of which the nearest is practised.")


@register_sampler("mopps", "MoPPS", settings=MoppsSettings, epsilon=False)
class Mopps(Rule):
    """Model predictive prompt selection (Qu et al. 2025, arXiv 2507.04632): a Thompson draw.

    alpha <- prior + lambda (alpha - prior) + successes; beta likewise with failures.
    Authors' code: recipe/ours/mopps.py; constants of config/our_trainer.yaml, and 16 candidates as
    in scripts/math. There the nearest B of 16 B are played 8 times each; here each draw is the
    nearest of 16, played once, with its probability computed instead of simulated.

    A group adds its successes and its failures, and is discounted once, as there. A goal that
    failed some ten times is practically never drawn again, unless `discount` is below 1.
    """

    def start(self, n_arms: int) -> None:
        self.won, self.lost = np.full((2, n_arms), self.settings.prior)

    def observe_group(self, arm: int, group: Group) -> None:
        for count, new in ((self.won, group.solved), (self.lost, group.answers - group.solved)):
            discounted = self.settings.discount * (count[arm] - self.settings.prior)
            count[arm] = self.settings.prior + discounted + new

    def weights(self, arms: ArmStats) -> np.ndarray:
        return nearest_draw(self.won, self.lost, 0.5, self.settings.candidates)
