"""MAGELLAN: predicted absolute learning progress of every goal, practised or not."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from magellan.core.settings import Fraction, Section
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


class MagellanSettings(Section):
    """How the sampler `magellan` weighs the learning progress that its estimator predicts."""

    lp_threshold: Fraction = Field(0.01, description="Learning progress below this counts as 0.")


@register_sampler(
    "magellan", "MAGELLAN", estimator="learned", settings=MagellanSettings, explores="arms"
)
def build(parts: SamplerParts, settings: MagellanSettings) -> GoalSampler:
    """ALP of the learned estimator; values below `lp_threshold` are noise and count as 0.

    A group of answers is one episode, labelled with its share of successes.
    """
    signal = partial(absolute_learning_progress, threshold=settings.lp_threshold)
    return GoalSampler(parts.goals, parts.estimator, signal, parts.epsilon, parts.rng)
