"""MAGELLAN: absolute learning progress predicted for each goal, also for goals never practised."""

from __future__ import annotations

from functools import partial

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.errors import InputError
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, SamplerSettings
from magellan.samplers.signals import absolute_learning_progress


def build(
    goals: Goals,
    settings: SamplerSettings,
    rng: np.random.Generator,
    learned: CompetenceEstimator | None = None,
) -> GoalSampler:
    """The learned estimator, made by the caller as it shares the agent's language model.

    Raises InputError without a learned estimator.
    """
    if learned is None:
        raise InputError("sampler: magellan needs a learned competence estimator; none was given")
    signal = partial(absolute_learning_progress, threshold=settings.threshold)
    return GoalSampler(goals, learned, signal, settings.epsilon(), rng)
