"""EK-Eval-ALP: learning progress of an expert's categories between two evaluations of them."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


@register_sampler("ek_eval", "EK-Eval-ALP", estimator="evaluated_buckets")
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """As EK-Online-ALP, but competence is evaluated (Gaven et al. 2025, the reference of Q1).

    The oracle of learning progress, so the ceiling of rules that choose by it; the run's cost tells
    the episodes that this takes (config/studies/ceiling.yaml).
    """
    return GoalSampler(
        parts.goals, parts.estimator, absolute_learning_progress, parts.epsilon, parts.rng
    )
