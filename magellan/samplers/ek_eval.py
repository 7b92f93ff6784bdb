"""EK-Eval-ALP: learning progress of expert-given categories between two evaluations."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


@register_sampler("ek_eval", "EK-Eval-ALP", estimator="evaluated_buckets", explores="arms")
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """EK-Online-ALP with evaluated competence (Gaven et al. 2025, the reference of Q1).

    An oracle of learning progress, hence the ceiling of rules that follow it; the evaluation
    episodes appear in the run's cost (config/studies/ceiling.yaml).
    """
    return GoalSampler(
        parts.goals, parts.estimator, absolute_learning_progress, parts.epsilon, parts.rng
    )
