"""Learning progress as the distance of a fast and a slow average, goals of low success drawn up."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Fraction, Section
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen


class FastSlowSettings(Section):
    """The sampler `fast_slow`."""

    rate: Fraction = Field(
        0.1,
        description="Weight of an episode in the fast average, and of the "
        "fast average in the slow one.",
    )
    theta: float = Field(0.1, gt=0, lt=1, description="Success that is reweighed to one half.")


class FastSlow(Rule):
    """Two exponential averages of each goal's success, from 0, which a random policy reaches."""

    def __init__(self, settings: FastSlowSettings) -> None:
        self._settings = settings

    def start(self, n_arms: int) -> None:
        self.fast, self.slow = np.zeros((2, n_arms))

    def hear(self, arm: int, success: float, advantage: float) -> None:
        self.fast[arm] += self._settings.rate * (success - self.fast[arm])
        self.slow[arm] += self._settings.rate * (self.fast[arm] - self.slow[arm])

    def weights(self, seen: Seen) -> np.ndarray:
        progress = np.abs(self._reweighed(self.fast) - self._reweighed(self.slow))
        known = self.fast > 0.0
        weights = np.zeros(len(known))
        if known.any():
            score = progress[known] - progress[known].mean()
            weights[known] = 1.0 / (1.0 + np.exp(-score / (progress[known].std() or 1.0)))
        return weights

    def _reweighed(self, rate: np.ndarray) -> np.ndarray:
        theta = self._settings.theta
        return (1.0 - theta) * rate / (rate + theta * (1.0 - 2.0 * rate))


@register_sampler("fast_slow", "Fast-slow LP", settings=FastSlowSettings)
def build(parts: SamplerParts, settings: FastSlowSettings) -> GoalSampler:
    """Learning progress of Kanitscheider et al. 2021 (arXiv 2106.14876), as OMNI has it.

    Code: OMNI (Zhang et al. 2023, arXiv 2306.01711), train.py:230-241 and envs/env_tr_lp.py:26-40;
    Syllabus, syllabus/curricula/learning_progress.py. There all tasks are evaluated now and then;
    here a goal's own episodes move its averages, and one that never succeeded is only explored.
    """
    return GoalSampler(parts.goals, None, FastSlow(settings), parts.epsilon, parts.rng)
