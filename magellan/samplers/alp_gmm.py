"""ALP-GMM: a Gaussian mixture over goal features and absolute learning progress."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np
from pydantic import Field, model_validator

from magellan.competence.learned_groups import whitened
from magellan.core.errors import InputError, not_allowed
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import ArmStats, Rule


class AlpGmmSettings(Section):
    """The sampler `alp_gmm`."""

    fit_every: int = Field(250, ge=50, le=10**6, description="Episodes between fits, and per fit.")
    random: Fraction = Field(0.2, description="Share of draws uniform over goals.")
    most: int = Field(
        10, ge=2, le=100, description="Maximum number of Gaussians; a fit tries 2 to this."
    )
    dimensions: Count = Field(4, description="Principal components of features, variance 1.")

    @model_validator(mode="after")
    def _check_most(self) -> AlpGmmSettings:
        if self.most > self.fit_every:
            raise not_allowed("alp_gmm.most", self.most, f"fit_every ({self.fit_every}) or less")
        return self


class AlpGmm(Rule):
    """p(goal) = sum_k ALP_k N_k(goal): a Gaussian by its mean learning progress, then a goal in it.

    features: returns the features of all goals, float32 (n_goals, width), the same at every call.
    """

    def __init__(self, settings: AlpGmmSettings, features: Callable[[], np.ndarray]) -> None:
        super().__init__(settings)
        self._points = functools.cache(lambda: whitened(features(), 1e-9, settings.dimensions))

    def start(self, n_arms: int) -> None:
        self.last = np.full(n_arms, -1.0)  # outcome of each goal's last episode; -1: none
        self.chance = np.zeros(n_arms)  # weight of each goal by the last fit, none before it
        self.recent = np.zeros((1, self.settings.fit_every, 2))  # goal, learning progress
        self.heard = np.zeros(1)  # episodes so far

    def observe(self, arm: int, success: float, advantage: float) -> None:
        warm = self.heard[0] > 5  # as released
        progress = abs(success - self.last[self._nearest_tried(arm)]) if warm else 0.0
        self.last[arm] = success
        slot = int(self.heard[0]) % self.settings.fit_every
        self.recent[0, slot] = arm, progress
        self.heard += 1
        if slot == self.settings.fit_every - 1:
            self._fit()

    def _nearest_tried(self, arm: int) -> int:
        """The tried goal with the nearest features: itself, if tried."""
        if self.last[arm] >= 0:
            return arm
        points, tried = self._points(), np.flatnonzero(self.last >= 0)
        return int(tried[((points[tried] - points[arm]) ** 2).sum(axis=1).argmin()])

    def _fit(self) -> None:
        """Fit mixtures to (goal, ALP); evaluate the one with the best AIC at all goals."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        points, (goals, progress) = self._points(), self.recent[0].T
        samples = np.column_stack([points[goals.astype(np.int64)], progress])
        with warnings.catch_warnings():  # there may be more Gaussians than distinct samples
            warnings.simplefilter("ignore", ConvergenceWarning)
            sizes = range(2, self.settings.most + 1)
            mixtures = [GaussianMixture(size, random_state=0).fit(samples) for size in sizes]
        best = min(mixtures, key=lambda mixture: mixture.aic(samples))
        alp = best.means_[:, -1].clip(0.0)
        alp = alp if alp.any() else np.ones(len(alp))
        gaussians = zip(best.means_[:, :-1], best.covariances_[:, :-1, :-1], strict=True)
        logs = np.stack([log_density(points, *gaussian) for gaussian in gaussians])
        density = np.exp(logs - logs.max(axis=1, keepdims=True))
        self.chance[:] = alp @ (density / density.sum(axis=1, keepdims=True))

    def weights(self, arms: ArmStats) -> np.ndarray:
        return self.chance * (self.heard[0] >= self.settings.fit_every)


def log_density(points: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Log density of a Gaussian at points (n, d), up to a constant: (n,)."""
    standardised = np.linalg.solve(np.linalg.cholesky(covariance), (points - mean).T)
    return -0.5 * (standardised**2).sum(axis=0)


@register_sampler("alp_gmm", "ALP-GMM", settings=AlpGmmSettings, epsilon=False, needs_features=True)
def build(parts: SamplerParts, settings: AlpGmmSettings) -> GoalSampler:
    """ALP-GMM (Portelas et al. 2019, arXiv 1910.07224) over goals instead of task parameters.

    Authors' code: teachDRL/teachers/algos/alp_gmm.py; constants are its defaults. There a task
    is drawn from the Gaussian itself; here a goal, by its density.

    A group of answers is one episode, labelled with its share of successes.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise InputError(
            "alp_gmm: scikit-learn is missing; pip install 'magellan-bench[workflow]'"
        ) from None
    rule = AlpGmm(settings, parts.features)
    return GoalSampler(parts.goals, None, rule, ConstantEpsilon(settings.random), parts.rng)
