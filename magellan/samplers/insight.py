"""InSight: the goal whose answers tell most about its success rate, with a preference for .3."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import nearest


class InsightSettings(Section):
    """The sampler `insight`."""

    discount: Fraction = Field(1.0, description="lambda: factor on a goal's counts per group.")
    eta: float = Field(3.0, ge=0, le=1e3, description="Sharpness of the preference for `mu`.")
    mu: Fraction = Field(0.3, description="Success rate that is preferred.")
    candidates: Count = Field(16, description="Goals drawn, of which the best is practised.")


@register_sampler("insight", "InSight", settings=InsightSettings, epsilon=False)
class Insight(Rule):
    """InSight (Zhou et al. 2026, arXiv 2603.01907), equations 6 and 11 to 17.

    p (1 - p) exp(-eta (p - mu)^2) times the mutual information of the success rate and a group.

    answers: of the largest group so far, (1,).

    Constants of appendix D.2, except mu: it prints 3.0, but table 5 has the main results at .3.
    There the best B of 16 B are played 8 times each; here each draw is the best of 16.

    A group adds its successes and failures. A goal that failed at first comes back when more is
    known of the others.
    """

    shared = ("answers",)

    def start(self, n_arms: int) -> None:
        self.won, self.lost = np.ones((2, n_arms))
        self.answers = np.ones(1)

    def observe_group(self, arm: int, group: Group) -> None:
        for count, new in ((self.won, group.solved), (self.lost, group.answers - group.solved)):
            count[arm] = 1.0 + self.settings.discount * (count[arm] - 1.0) + new
        self.answers[:] = max(self.answers[0], group.answers)

    def weights(self, arms: ArmStats) -> np.ndarray:
        pairs, group = np.unique(self.won + 1j * self.lost, return_inverse=True)
        mean = pairs.real / (pairs.real + pairs.imag)
        preference = mean * (1 - mean) * np.exp(-self.settings.eta * (mean - self.settings.mu) ** 2)
        scores = preference * information(pairs.real, pairs.imag, int(self.answers[0]))
        scores /= scores.max() or 1.0  # with many answers they are small
        return nearest(np.round(scores, 9)[group], 1.0, self.settings.candidates)


log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def information(won: np.ndarray, lost: np.ndarray, n: int) -> np.ndarray:
    """Mutual information of p ~ Beta(won, lost) and the successes of n answers, (m,) each."""
    k = np.arange(n + 1)[:, None]
    after = log_beta(won + k, lost + n - k) - log_beta(won, lost)
    ways = log_gamma(n + 1.0) - log_gamma(k + 1.0) - log_gamma(n - k + 1.0)
    entropy_after = (np.exp(ways + after) * entropy(won + k, lost + n - k)).sum(axis=0)
    return np.maximum(entropy(won, lost) - entropy_after, 0.0)


def log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def entropy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Differential entropy of Beta(a, b)."""
    inner = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
    return log_beta(a, b) - inner


def digamma(x: np.ndarray) -> np.ndarray:
    """Derivative of the logarithm of the gamma function; x > 0."""
    shifted = x + 10.0  # where five terms of its asymptotic series are exact to 1e-12
    square = 1.0 / shifted**2
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return np.log(shifted) - 0.5 / shifted - series - sum(1.0 / (x + i) for i in range(10))
