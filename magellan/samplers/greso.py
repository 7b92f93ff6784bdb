"""GRESO: goals whose outcome has not varied of late are skipped, with growing probability."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen

LEAST, MOST, STEP, FLOOR = 0.05, 0.95, 0.01, 0.01
"""Range and step of p, and the smallest chance to be played."""


class GresoSettings(Section):
    """The sampler `greso`."""

    keep: Fraction = Field(0.5, description="p at the start: chance to be played per repetition.")
    repeated: Fraction = Field(0.25, description="Share of repetitions that p is steered to.")
    batch: Count = Field(256, description="Episodes between two steps of p.")


class Greso(Rule):
    """Played with max(p ** z, .01), z being how often a goal's last outcome has been repeated."""

    def __init__(self, settings: GresoSettings) -> None:
        self._settings = settings

    def start(self, n_arms: int) -> None:
        self.streak = np.zeros(n_arms)  # so many successes in a row; below 0: failures
        self.keep = np.full(2, self._settings.keep)  # of easy goals and of hard ones
        self.counted = np.zeros(3)  # episodes, repeated successes and failures among them

    def hear(self, arm: int, success: float, advantage: float) -> None:
        sign = 1.0 if success else -1.0
        self.streak[arm] = sign + (self.streak[arm] if self.streak[arm] * sign > 0 else 0.0)
        repeated = abs(self.streak[arm]) > 1
        self.counted += 1.0, repeated and success, repeated and not success
        if self.counted[0] >= self._settings.batch:
            aims = self._settings.repeated * np.array([1.0, 2.0]) / 3.0
            too_many = self.counted[1:] / self.counted[0] >= aims
            self.keep[:] = (self.keep + np.where(too_many, -STEP, STEP)).clip(LEAST, MOST)
            self.counted[:] = 0.0

    def weights(self, seen: Seen) -> np.ndarray:
        repeated = np.maximum(np.abs(self.streak) - 1.0, 0.0)
        return np.maximum(self.keep[np.where(self.streak > 0, 0, 1)] ** repeated, FLOOR)


@register_sampler("greso", "GRESO", settings=GresoSettings, epsilon=False)
def build(parts: SamplerParts, settings: GresoSettings) -> GoalSampler:
    """Selective rollouts (Zheng et al. 2025, arXiv 2506.02177); each draw is a chance to be played.

    Authors' code: verl/trainer/ttis/presampling_selector.py:102-147, steps of p in
    verl/trainer/ppo/ray_trainer.py:1199-1219. There a group of 8 rollouts varies or does not. One
    rollout never does, so that each goal would be skipped once tried and p would fall to its least:
    here the first outcome of a streak does not count, only its repetitions.
    """
    return GoalSampler(parts.goals, None, Greso(settings), ConstantEpsilon(0.0), parts.rng)
