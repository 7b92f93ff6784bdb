"""Goldilocks: sqrt(p (1 - p)), the standard deviation of an outcome, p predicted for every goal."""

from __future__ import annotations

import numpy as np

from magellan.core.settings import NoSettings
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import learnability


def deviation(now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
    """Square root of p (1 - p)."""
    return np.sqrt(learnability(now, delayed))


@register_sampler("goldilocks", "Goldilocks", estimator="learned", explores="arms")
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """Goldilocks RL (Mahrooghi et al. 2026, arXiv 2602.14868), with MAGELLAN's head as teacher.

    There a second language model predicts the square root itself, from the groups of past steps,
    and the best of some candidates is drawn. Here the head predicts p, draws are in proportion, and
    exploration is the schedule of the other samplers.

    A group of answers is one episode, labelled with its share of successes.
    """
    return GoalSampler(parts.goals, parts.estimator, deviation, parts.epsilon, parts.rng)
