"""Difficulty pools: easy and hard goals are drawn less often than normal ones, and come back."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Fraction, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen

RATED = 2
"""Episodes from which on a goal has a success rate."""


class PoolsSettings(Section):
    """The sampler `pools`."""

    hard: Fraction = Field(0.25, description="Goals of at most this success rate are hard.")
    normal: Fraction = Field(0.75, description="Others of at most this one are normal.")
    extreme: float = Field(0.2, gt=0, le=1e3, description="Weight of an easy or hard goal.")


class Pools(Rule):
    """Goals without a success rate weigh as much as normal ones."""

    def __init__(self, settings: PoolsSettings) -> None:
        self._settings = settings

    def weights(self, seen: Seen) -> np.ndarray:
        assert seen.now is not None
        hard, normal = self._settings.hard, self._settings.normal
        extreme = (seen.tries >= RATED) & ((seen.now <= hard) | (seen.now > normal))
        return np.where(extreme, self._settings.extreme, 1.0)


@register_sampler(
    "pools", "Difficulty pools", estimator="per_goal", settings=PoolsSettings, epsilon=False
)
def build(parts: SamplerParts, settings: PoolsSettings) -> GoalSampler:
    """As `DifficultyPoolSampler` of prime-rl, which has no paper.

    Its code: src/prime_rl/orchestrator/curriculum/samplers/pool.py. There the rate is the
    mean of a task's last group of rollouts; here that of the newer half of its window, from two
    episodes on. Thresholds and weights are its defaults.
    """
    rule = Pools(settings)
    return GoalSampler(parts.goals, parts.estimator, rule, ConstantEpsilon(0.0), parts.rng)
