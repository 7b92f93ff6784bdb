"""Random: all goals with equal probability."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler


@register_sampler("random", "Random", epsilon=False)
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """No estimator; exploration only (epsilon 1)."""
    return GoalSampler(parts.goals, None, None, ConstantEpsilon(1.0), parts.rng)
