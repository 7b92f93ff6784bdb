"""Regions: MAGELLAN over learned groups of goals: first a region, then a goal in it."""

from __future__ import annotations

from functools import partial

from magellan.samplers.base import GoalSampler
from magellan.samplers.magellan import MagellanSettings
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


class RegionsSettings(MagellanSettings):
    """How the sampler `regions` weighs a region's mean learning progress."""


@register_sampler(
    "regions", "Regions", estimator="learned_groups", settings=RegionsSettings, explores="arms"
)
def build(parts: SamplerParts, settings: RegionsSettings) -> GoalSampler:
    """Absolute learning progress of regions; exploration is uniform over them.

    Unpublished. MAGELLAN's weights are per goal, so at equal progress a kind of goals gets practice
    in proportion to its size; regions remove this factor.

    A group of answers is one episode, labelled with its share of successes.
    """
    signal = partial(absolute_learning_progress, threshold=settings.lp_threshold)
    return GoalSampler(parts.goals, parts.estimator, signal, parts.epsilon, parts.rng)
