"""Fast-slow learning progress: |fast - slow| average success, reweighted towards hard goals."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule


class FastSlowSettings(Section):
    """The sampler `fast_slow`."""

    rate: Fraction = Field(0.1, description="Of the fast average, and of the slow one over it.")
    theta: float = Field(0.1, gt=0, lt=1, description="Success that reweighting maps to one half.")


@register_sampler("fast_slow", "Fast-slow LP", settings=FastSlowSettings, explores="goals")
class FastSlow(Rule):
    """Learning progress of Kanitscheider et al. 2021 (arXiv 2106.14876), as in OMNI.

    Two exponential averages of each goal's success, from 0, the success of a random policy.

    Code: OMNI (Zhang et al. 2023, arXiv 2306.01711), train.py:230-241 and envs/env_tr_lp.py:26-40;
    Syllabus, syllabus/curricula/learning_progress.py. There all tasks are evaluated periodically;
    here a goal's own episodes move its averages, and one never solved is only explored.

    A group of answers moves the averages once, by its share of successes. With `epsilon_end: 0` a
    goal that failed at first is never drawn again.
    """

    def start(self, n_arms: int) -> None:
        self.fast, self.slow = np.zeros((2, n_arms))

    def observe(self, arm: int, success: float, advantage: float) -> None:
        self.fast[arm] += self.settings.rate * (success - self.fast[arm])
        self.slow[arm] += self.settings.rate * (self.fast[arm] - self.slow[arm])

    def weights(self, arms: ArmStats) -> np.ndarray:
        progress = np.abs(self._reweight(self.fast) - self._reweight(self.slow))
        solved = self.fast > 0.0
        weights = np.zeros(len(solved))
        if solved.any():
            score = progress[solved] - progress[solved].mean()
            weights[solved] = 1.0 / (1.0 + np.exp(-score / (progress[solved].std() or 1.0)))
        return weights

    def _reweight(self, rate: np.ndarray) -> np.ndarray:
        theta = self.settings.theta
        return (1.0 - theta) * rate / (rate + theta * (1.0 - 2.0 * rate))
