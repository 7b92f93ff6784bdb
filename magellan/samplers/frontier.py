"""Frontier: spread draws over levels of predicted success, and exploration over kinds of goals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from pydantic import Field

from magellan.competence.learned_groups import MIN_VARIANCE, kmeans, whitened
from magellan.core.errors import InputError
from magellan.core.settings import Count, Fraction, Section
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import ArmStats, Rule


class FrontierSettings(Section):
    """The sampler `frontier`."""

    levels: Count = Field(16, description="Levels of the square root of predicted success.")
    explore: Fraction = Field(0.2, description="Share of draws that explore.")
    kinds: int = Field(
        48, ge=1, le=10_000, description="Maximum number of kinds to explore; 1: all goals alike."
    )


class Frontier(Rule):
    """Each level of success that some goal has is equally likely, and so is each kind.

    features: returns the features of all goals, float32 (n_goals, width), the same at every call.
    """

    def __init__(self, settings: FrontierSettings, features: Callable[[], np.ndarray]) -> None:
        super().__init__(settings)
        self._by_kind = cache(lambda: shared_by(kinds_of(features(), settings.kinds)))

    def weights(self, arms: ArmStats) -> np.ndarray:
        assert arms.now is not None
        levels, explore = self.settings.levels, self.settings.explore
        level = np.minimum((np.sqrt(arms.now) * levels).astype(np.int64), levels - 1)
        return (1 - explore) * shared_by(level) + explore * self._by_kind()


def shared_by(groups: np.ndarray) -> np.ndarray:
    """Probability of each goal if a non-empty group is drawn uniformly, then a goal in it: (n,).

    groups: number of each goal's group, int64 (n,).
    """
    chance = 1.0 / np.bincount(groups)[groups]
    return chance / chance.sum()


def kinds_of(features: np.ndarray, most: int) -> np.ndarray:
    """Cluster the goals by features (n, width): number of each goal's kind, int64 (n,)."""
    return kmeans(whitened(features, MIN_VARIANCE), min(most, len(features)))


@register_sampler(
    "frontier",
    "Frontier",
    estimator="learned",
    settings=FrontierSettings,
    epsilon=False,
    needs_features=True,
    needs_all=True,
)
def build(parts: SamplerParts, settings: FrontierSettings) -> GoalSampler:
    """Uniform over the square root of predicted success instead of over goals.

    Unpublished. In proportion to a signal, a kind of goals gets practice by its number: what is
    mastered, or impossible, outweighs the few goals that are being learnt. Here goals at the same
    level share one level's draws, as Skew-Fit (Pong et al. 2020, arXiv 1903.03698) evens out the
    density of states. The square root has more levels near 0, where new skills show, than near 1.
    Kinds are clusters of the untrained model's representations (`regions`, of the trained one's).

    A group of answers is one episode, labelled with its share of successes.
    """
    if parts.estimator is None or parts.estimator.arms != "goals":
        raise InputError(
            "samplers.estimator: one over groups is not allowed for frontier; allowed: over goals"
        )
    rule = Frontier(settings, parts.features)
    return GoalSampler(parts.goals, parts.estimator, rule, NEVER, parts.rng)
