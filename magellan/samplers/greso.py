"""GRESO: skip a goal with a probability that grows while its outcome stays the same."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule

LEAST, MOST, STEP, FLOOR = 0.05, 0.95, 0.01, 0.01
"""Range and step of p; smallest probability of playing a goal."""


class GresoSettings(Section):
    """The sampler `greso`."""

    keep: Fraction = Field(0.5, description="Initial p: chance of being played, per repetition.")
    repeated: Fraction = Field(0.25, description="Target share of repetitions, by which p adapts.")
    batch: Count = Field(256, description="Episodes between steps of p.")


@register_sampler("greso", "GRESO", settings=GresoSettings, epsilon=False)
class Greso(Rule):
    """Selective rollouts (Zheng et al. 2025, arXiv 2506.02177): weights instead of skips.

    Probability of playing a goal: max(p ** z, .01), z the repetitions of its last outcome.

    Authors' code: verl/trainer/ttis/presampling_selector.py:102-147, steps of p in
    verl/trainer/ppo/ray_trainer.py:1199-1219. There z counts groups of 8 rollouts with equal
    outcomes. A single rollout is always such a group: every goal would be skipped once tried and p
    would fall to its minimum. So the first outcome of a streak does not count, only repetitions. Of
    groups of two answers or more each one with equal rewards counts, as there.
    """

    shared = ("keep", "counted")

    def start(self, n_arms: int) -> None:
        self.streak = np.zeros(n_arms)  # successes in a row; negative: failures
        self.keep = np.full(2, self.settings.keep)  # p of easy goals and of hard ones
        self.counted = np.zeros(3)  # episodes, repeated successes, repeated failures

    def observe_group(self, arm: int, group: Group) -> None:
        if group.spread:
            self.streak[arm] = 0.0
        else:
            sign = 1.0 if group.success else -1.0
            streak = self.streak[arm] if self.streak[arm] * sign > 0 else 0.0
            self.streak[arm] = streak + sign * (1.0 if streak or group.answers == 1 else 2.0)
        repeated = abs(self.streak[arm]) > 1
        self.counted += 1.0, repeated and group.success, repeated and not group.success
        if self.counted[0] >= self.settings.batch:
            targets = self.settings.repeated * np.array([1.0, 2.0]) / 3.0
            too_many = self.counted[1:] / self.counted[0] >= targets
            self.keep[:] = (self.keep + np.where(too_many, -STEP, STEP)).clip(LEAST, MOST)
            self.counted[:] = 0.0

    def weights(self, arms: ArmStats) -> np.ndarray:
        repeated = np.maximum(np.abs(self.streak) - 1.0, 0.0)
        return np.maximum(self.keep[np.where(self.streak > 0, 0, 1)] ** repeated, FLOOR)
