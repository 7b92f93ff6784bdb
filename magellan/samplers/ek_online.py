"""EK-Online-ALP: absolute learning progress of an expert's categories, then any goal in one."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.competence.expert_buckets import ExpertBuckets
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, SamplerSettings
from magellan.samplers.signals import absolute_learning_progress


def build(
    goals: Goals,
    settings: SamplerSettings,
    rng: np.random.Generator,
    learned: CompetenceEstimator | None = None,
) -> GoalSampler:
    """One window per feasible category, no threshold on learning progress.

    Exploration is uniform over the categories, impossible included, that have goals; exploitation
    chooses among the feasible ones of them, uniformly while all learning progress is 0.
    """
    estimator = ExpertBuckets(goals.categories_at, settings.window, settings.drop_standing_starts)
    return GoalSampler(
        goals, estimator, absolute_learning_progress, settings.epsilon(), rng, arms="categories"
    )
