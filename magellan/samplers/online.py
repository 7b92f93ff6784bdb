"""Online-ALP: absolute learning progress of each goal, from that goal's own last outcomes."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.competence.per_goal import PerGoalWindows
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, SamplerSettings
from magellan.samplers.signals import absolute_learning_progress


def build(
    goals: Goals,
    settings: SamplerSettings,
    rng: np.random.Generator,
    learned: CompetenceEstimator | None = None,
) -> GoalSampler:
    """One window per goal, no threshold on learning progress."""
    estimator = PerGoalWindows(len(goals), settings.window)
    return GoalSampler(goals, estimator, absolute_learning_progress, settings.epsilon(), rng)
