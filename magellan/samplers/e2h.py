"""E2H: a schedule from easy groups to hard ones, whatever was learned."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Positive, Section
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen


class E2hSettings(Section):
    """The sampler `e2h`."""

    schedule: Literal["cosine", "gaussian"] = Field("cosine", description="E2H-C or E2H-G.")
    updates: Count = Field(1_600, description="Policy updates until the schedule stands still.")
    exponent: Positive = Field(
        0.5, description="Of time, for the mean of `gaussian`: below 1, fast first."
    )
    sigma: Positive = Field(0.5, description="Standard deviation of `gaussian`, in groups.")


class E2h(Rule):
    """Groups count as difficult as the world's order says, easy ones first."""

    def weights(self, seen: Seen) -> np.ndarray:
        settings, groups = self.settings, np.arange(len(seen.tries))
        past = min(seen.step / settings.updates, 1.0)
        least = 2 / (len(groups) * (len(groups) + 1))
        if settings.schedule == "cosine":
            easy = (1 + np.cos(np.pi * past)) / 2
            return least * (easy * (groups[::-1] + 1) + (1 - easy) * (groups + 1))
        mean = past**settings.exponent * (len(groups) - 1)
        near = np.exp(-((groups - mean) ** 2) / (2 * settings.sigma**2))
        return least + (1 - len(groups) * least) * near / near.sum()


@register_sampler("e2h", "E2H", settings=E2hSettings, epsilon=False)
def build(parts: SamplerParts, settings: E2hSettings) -> GoalSampler:
    """E2H Reasoner (Parashar et al. 2025, arXiv 2506.06632); impossible goals are never drawn.

    Schedules, their floor and constants: github.com/divelab/E2H-Reasoning, src/trainer.py.
    """
    return GoalSampler(parts.goals, None, E2h(settings), NEVER, parts.rng, arms="categories")
