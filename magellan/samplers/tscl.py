"""Teacher-student curriculum learning: the group with the steepest learning curve."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import greedy, thompson


class TsclSettings(Section):
    """The sampler `tscl`."""

    variant: Literal["online", "window", "sampling"] = Field(
        "sampling", description="Algorithm of the paper: `online`, `window` or `sampling`."
    )
    step: Fraction = Field(0.1, description="Step size of `online`.")
    window: Count = Field(10, description="Scores kept per group by `window` and `sampling`.")


@register_sampler("tscl", "TSCL", settings=TsclSettings, explores="categories", arms="categories")
class Tscl(Rule):
    """Teacher-student curriculum learning (Matiisen et al. 2017, arXiv 1707.00183).

    The group with the largest |progress|, ties shared; an episode's score is its success. Constants
    are those of the authors' code (github.com/tambetm/TSCL, addition_rnn_teacher.py). A group of
    answers is one score, its share of successes.
    """

    def start(self, n_arms: int) -> None:
        self.progress, self.last, self.heard = np.zeros((3, n_arms))
        self.scores, self.changes, self.times = np.zeros((3, n_arms, self.settings.window))

    def observe(self, arm: int, success: float, advantage: float) -> None:
        change, slot = success - self.last[arm], int(self.heard[arm]) % self.settings.window
        self.progress[arm] += self.settings.step * (change - self.progress[arm])
        self.scores[arm, slot], self.changes[arm, slot] = success, change
        self.times[arm, slot], self.last[arm] = self.times.max() + 1, success
        self.heard[arm] += 1

    def weights(self, arms: ArmStats) -> np.ndarray:
        if self.settings.variant == "online":
            return greedy(np.abs(self.progress))
        valid = np.arange(self.settings.window) < self.heard[:, None]
        if self.settings.variant == "window":
            return greedy(np.abs(slopes(self.times, self.scores, valid)))
        return thompson(np.abs(self.changes), valid, untried=1.0)


def slopes(times: np.ndarray, scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Least-squares slope of each row's `valid` scores over times; 1 with fewer than two.

    All (n, window); returns float64 (n,).
    """
    n = valid.sum(axis=1)
    mean = np.stack([(x * valid).sum(axis=1) for x in (times, scores)]) / np.maximum(n, 1)
    time, score = (times - mean[0][:, None]) * valid, (scores - mean[1][:, None]) * valid
    return np.where(n < 2, 1.0, (time * score).sum(axis=1) / np.maximum((time**2).sum(axis=1), 0.5))
