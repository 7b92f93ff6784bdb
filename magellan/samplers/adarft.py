"""AdaRFT: the group nearest to a target difficulty that rises with success, falls with failure."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, BatchRule
from magellan.samplers.selection import greedy

HARDEST = 100.0
"""Difficulty of the last group; evenly spaced from 0, in the world's order, easy to hard."""


class AdarftSettings(Section):
    """The sampler `adarft`."""

    success: Fraction = Field(0.5, description="beta: target success rate.")
    sensitivity: Positive = Field(2.0, description="alpha: of the target to success.")
    step: Positive = Field(50.0, description="eta: largest change of the target per batch.")
    batch: Count = Field(1_024, description="Episodes per batch.")


@register_sampler(
    "adarft", "AdaRFT", settings=AdarftSettings, epsilon=False, ordered=True, arms="categories"
)
class Adarft(BatchRule):
    """AdaRFT (Shi et al. 2025, arXiv 2504.05520); impossible goals are never drawn.

    T <- clip(T + eta tanh(alpha (success - beta)), 0, 100); the group nearest to T is drawn.
    Constants: the flags in the README of github.com/limenlp/verl. A batch counts answers.
    """

    shared = ("target",)

    def start(self, n_arms: int) -> None:
        super().start(n_arms)
        self.target = np.zeros(1)

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        excess = total.sum() / count.sum() - self.settings.success
        change = self.settings.step * np.tanh(self.settings.sensitivity * excess)
        self.target[:] = (self.target + change).clip(0.0, HARDEST)

    def weights(self, arms: ArmStats) -> np.ndarray:
        difficulty = np.linspace(0.0, HARDEST, len(arms.tries))
        return greedy(-np.abs(difficulty - self.target))
