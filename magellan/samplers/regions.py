"""Regions: MAGELLAN over groups of its own: a region first, then a goal in it."""

from __future__ import annotations

from functools import partial

from magellan.samplers.base import GoalSampler
from magellan.samplers.magellan import MagellanSettings
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


class RegionsSettings(MagellanSettings):
    """How the sampler `regions` weighs the mean learning progress of a region."""


@register_sampler("regions", "Regions", estimator="learned_groups", settings=RegionsSettings)
def build(parts: SamplerParts, settings: RegionsSettings) -> GoalSampler:
    """Absolute learning progress of regions, and exploration uniform over them.

    Nobody has published it: each goal of a large kind has as much progress as one of a small kind,
    so that MAGELLAN gives a kind practice in proportion to its number of goals, too.
    """
    signal = partial(absolute_learning_progress, threshold=settings.lp_threshold)
    return GoalSampler(parts.goals, parts.estimator, signal, parts.epsilon, parts.rng)
