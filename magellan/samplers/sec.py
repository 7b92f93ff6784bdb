"""Self-evolving curriculum: softmax over groups of the recent mean |advantage| of answers."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, BatchRule
from magellan.samplers.selection import softmax


class SecSettings(Section):
    """The sampler `sec`."""

    step: Fraction = Field(0.5, description="Step size of TD(0), once per batch.")
    temperature: Positive = Field(1.0, description="Of the softmax; towards 0: the best only.")
    batch: Count = Field(256, description="Episodes per batch.")


@register_sampler("sec", "SEC", settings=SecSettings, epsilon=False, arms="categories")
class Sec(BatchRule):
    """Self-evolving curriculum (Chen et al. 2025, arXiv 2505.14970), no other exploration.

    Q <- Q + step (mean |advantage| of the batch - Q) per group, from Q = 0.
    """

    wants_advantage, learns_from = True, "advantage"

    def start(self, n_arms: int) -> None:
        super().start(n_arms)
        self.value = np.zeros(n_arms)

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        played = count > 0
        reward = total[played] / count[played]
        self.value[played] += self.settings.step * (reward - self.value[played])

    def weights(self, arms: ArmStats) -> np.ndarray:
        return softmax(self.value, self.settings.temperature)
