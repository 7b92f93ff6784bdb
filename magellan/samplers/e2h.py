"""E2H: a fixed schedule from easy groups to hard ones; outcomes are ignored."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule


class E2hSettings(Section):
    """The sampler `e2h`."""

    schedule: Literal["cosine", "gaussian"] = Field("cosine", description="E2H-C or E2H-G.")
    updates: Count = Field(1_600, description="Policy updates until the schedule ends.")
    exponent: Positive = Field(0.5, description="Of time in the mean of `gaussian`.")
    sigma: float = Field(0.5, ge=0.01, description="Standard deviation of `gaussian`, in groups.")


@register_sampler(
    "e2h", "E2H", settings=E2hSettings, epsilon=False, ordered=True, arms="categories"
)
class E2h(Rule):
    """E2H Reasoner (Parashar et al. 2025, arXiv 2506.06632); impossible goals are never drawn.

    Shares of groups by time; the world orders groups from easy to hard. Schedules,
    their floor and constants: github.com/divelab/E2H-Reasoning, src/trainer.py.
    """

    def weights(self, arms: ArmStats) -> np.ndarray:
        settings, groups = self.settings, np.arange(len(arms.tries))
        time = min(arms.step / settings.updates, 1.0)
        floor = 2 / (len(groups) * (len(groups) + 1))
        if settings.schedule == "cosine":
            easy = (1 + np.cos(np.pi * time)) / 2
            return floor * (easy * (groups[::-1] + 1) + (1 - easy) * (groups + 1))
        mean = time**settings.exponent * (len(groups) - 1)
        exponents = -(((groups - mean) / settings.sigma) ** 2) / 2
        density = np.exp(exponents - exponents.max())
        return floor + (1 - len(groups) * floor) * density / density.sum()
