"""Random: every goal with the same probability, whatever was learned."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler


@register_sampler("random", "Random", epsilon=False)
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """No estimator, and exploration only."""
    return GoalSampler(parts.goals, None, None, ConstantEpsilon(1.0), parts.rng)
