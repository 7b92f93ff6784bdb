"""ALP-GMM: regions of the model's own features where absolute learning progress is high."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np
from pydantic import Field

from magellan.core.errors import InputError
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen


class AlpGmmSettings(Section):
    """The sampler `alp_gmm`."""

    fit_every: int = Field(250, ge=50, le=10**6, description="Episodes between fits, and of a fit.")
    random: Fraction = Field(0.2, description="Share of draws that are uniform over goals.")
    most: int = Field(10, ge=2, le=100, description="Gaussians that are tried: 2 to so many.")
    dimensions: Count = Field(4, description="Principal dimensions of goals, scaled to variance 1.")


class AlpGmm(Rule):
    """A Gaussian is drawn by its mean learning progress, then a goal by its density there.

    features: gives those of all goals, float32 (n_goals, width), always the same.
    """

    def __init__(self, settings: AlpGmmSettings, features: Callable[[], np.ndarray]) -> None:
        self._settings = settings
        self._places = functools.cache(lambda: whitened(features(), settings.dimensions))

    def start(self, n_arms: int) -> None:
        self.last = np.full(n_arms, -1.0)  # outcome of each goal's last episode; -1: none
        self.chance = np.zeros(n_arms)  # of each goal, by the last fit
        self.recent = np.zeros((1, self._settings.fit_every, 2))  # goal, learning progress
        self.heard = np.zeros(1)

    def hear(self, arm: int, success: float, advantage: float) -> None:
        known = self.heard[0] > 5  # as released
        progress = abs(success - self.last[self._nearest(arm)]) if known else 0.0
        self.last[arm] = success
        slot = int(self.heard[0]) % self._settings.fit_every
        self.recent[0, slot] = arm, progress
        self.heard += 1
        if slot == self._settings.fit_every - 1:
            self._fit()

    def _nearest(self, arm: int) -> int:
        """The goal itself, or that of those tried whose features are nearest."""
        if self.last[arm] >= 0:
            return arm
        places, tried = self._places(), np.flatnonzero(self.last >= 0)
        return int(tried[((places[tried] - places[arm]) ** 2).sum(axis=1).argmin()])

    def _fit(self) -> None:
        """The mixture of goals and progress with the best AIC, read at all goals."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        places, (goals, progress) = self._places(), self.recent[0].T
        points = np.column_stack([places[goals.astype(np.int64)], progress])
        numbers = range(2, self._settings.most + 1)
        with warnings.catch_warnings():  # more Gaussians than places is one of the tries
            warnings.simplefilter("ignore", ConvergenceWarning)
            fits = [GaussianMixture(number, random_state=0).fit(points) for number in numbers]
        best = min(fits, key=lambda fit: fit.aic(points))
        worth = best.means_[:, -1].clip(0.0)
        worth = worth if worth.any() else np.ones(len(worth))
        pairs = zip(best.means_[:, :-1], best.covariances_[:, :-1, :-1], strict=True)
        densities = np.stack([log_density(places, *pair) for pair in pairs])
        inside = np.exp(densities - densities.max(axis=1, keepdims=True))
        self.chance[:] = worth @ (inside / inside.sum(axis=1, keepdims=True))

    def weights(self, seen: Seen) -> np.ndarray:
        return self.chance


def whitened(features: np.ndarray, dimensions: int) -> np.ndarray:
    """Principal dimensions, each of variance 1: (n, dimensions), or fewer where there are fewer."""
    centred = features - features.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = np.flatnonzero(values > 1e-9 * values[-1])[-dimensions:]
    return centred @ (vectors[:, kept] / np.sqrt(values[kept]))


def log_density(places: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Of a Gaussian at places (n, d), but for a constant: (n,)."""
    apart = np.linalg.solve(np.linalg.cholesky(covariance), (places - mean).T)
    return -0.5 * (apart**2).sum(axis=0)


@register_sampler("alp_gmm", "ALP-GMM", settings=AlpGmmSettings, epsilon=False, reads=True)
def build(parts: SamplerParts, settings: AlpGmmSettings) -> GoalSampler:
    """ALP-GMM (Portelas et al. 2019, arXiv 1910.07224) over goals instead of task parameters.

    Authors' code: teachDRL/teachers/algos/alp_gmm.py; constants are its defaults. A task is drawn
    there from the Gaussian itself; here a goal, by the density at each.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise InputError(
            "alp_gmm: scikit-learn is missing; pip install 'magellan-bench[workflow]'"
        ) from None
    rule = AlpGmm(settings, parts.features)
    return GoalSampler(parts.goals, None, rule, ConstantEpsilon(settings.random), parts.rng)
