"""Online-ALP: absolute learning progress of each goal, from its own last outcomes."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


@register_sampler("online", "Online-ALP", estimator="per_goal", explores="arms")
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """One window of outcomes per goal; no threshold on learning progress.

    A group of answers is one outcome of the window, and a single group tells a success rate.
    """
    return GoalSampler(
        parts.goals, parts.estimator, absolute_learning_progress, parts.epsilon, parts.rng
    )
