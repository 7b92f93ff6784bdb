"""Self-evolving curriculum: the group whose advantages were largest of late, by softmax."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Positive, Section
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.batches import BatchRule
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Seen
from magellan.samplers.selection import softmax


class SecSettings(Section):
    """The sampler `sec`."""

    step: Fraction = Field(0.5, description="Step size of TD(0), once per batch.")
    temperature: Positive = Field(1.0, description="Of the softmax; towards 0 the best alone.")
    batch: Count = Field(256, description="Episodes of a batch.")


class Sec(BatchRule):
    """Value of a group: running mean of its batches' mean |advantage|, 0 at the start."""

    wants_advantage, heard = True, "advantage"

    def start(self, n_arms: int) -> None:
        super().start(n_arms)
        self.value = np.zeros(n_arms)

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        here = count > 0
        self.value[here] += self.settings.step * (total[here] / count[here] - self.value[here])

    def weights(self, seen: Seen) -> np.ndarray:
        return softmax(self.value, self.settings.temperature)


@register_sampler("sec", "SEC", settings=SecSettings, epsilon=False)
def build(parts: SamplerParts, settings: SecSettings) -> GoalSampler:
    """Self-evolving curriculum (Chen et al. 2025, arXiv 2505.14970), without other exploration."""
    return GoalSampler(parts.goals, None, Sec(settings), NEVER, parts.rng, arms="categories")
