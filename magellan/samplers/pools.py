"""Difficulty pools: easy and hard goals get a smaller weight than normal ones, but never 0."""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from magellan.core.errors import not_allowed
from magellan.core.settings import Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule


class PoolsSettings(Section):
    """The sampler `pools`."""

    hard: Fraction = Field(0.25, description="Goals up to this success rate are hard.")
    normal: Fraction = Field(0.75, description="Others up to this success rate are normal.")
    extreme: float = Field(0.2, gt=0, le=1e3, description="Weight of an easy or hard goal.")

    @model_validator(mode="after")
    def _check_normal(self) -> PoolsSettings:
        if self.normal < self.hard:
            raise not_allowed("pools.normal", self.normal, f"pools.hard ({self.hard}) or more")
        return self


@register_sampler(
    "pools", "Difficulty pools", estimator="per_goal", settings=PoolsSettings, epsilon=False
)
class Pools(Rule):
    """`DifficultyPoolSampler` of prime-rl, which has no paper.

    Weight 1 for normal and unrated goals, `extreme` for easy and hard ones.

    Code: src/prime_rl/orchestrator/curriculum/samplers/pool.py, with its default thresholds and
    weights. There the rate is the mean of a task's last group of rollouts; here of the newer half
    of its window, from two episodes, or one group, on.
    """

    def weights(self, arms: ArmStats) -> np.ndarray:
        assert arms.now is not None
        hard, normal = self.settings.hard, self.settings.normal
        extreme = (arms.tries >= 2) & ((arms.now <= hard) | (arms.now > normal))
        return np.where(extreme, self.settings.extreme, 1.0)
