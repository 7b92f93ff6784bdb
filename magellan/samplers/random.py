"""Random: every goal with the same probability, whatever was learned."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, SamplerSettings
from magellan.samplers.schedules import ConstantEpsilon
from magellan.samplers.signals import absolute_learning_progress


def build(
    goals: Goals,
    settings: SamplerSettings,
    rng: np.random.Generator,
    learned: CompetenceEstimator | None = None,
) -> GoalSampler:
    """No estimator, and exploration only."""
    return GoalSampler(goals, None, absolute_learning_progress, ConstantEpsilon(1.0), rng)
