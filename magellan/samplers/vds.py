"""VDS: goals on whose value several critics disagree."""

from __future__ import annotations

import numpy as np

from magellan.core.errors import InputError
from magellan.core.settings import NoSettings
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import ArmStats, Rule


class Disagreement(Rule):
    """Weight: the standard deviation of the critics' predictions."""

    def weights(self, arms: ArmStats) -> np.ndarray:
        assert arms.uncertainty is not None
        return arms.uncertainty


@register_sampler("vds", "VDS", estimator="ensemble", epsilon=False)
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """Value disagreement sampling (Zhang, Abbeel, Pinto 2020, arXiv 2006.09641).

    Authors' code: baselines/her/goal_sampler.py, standard deviation of three critics. There one of
    1,000 drawn goals is chosen by weight; here one of all goals.

    A group of answers is one episode, labelled with its share of successes.
    """
    if parts.estimator is None or parts.estimator.uncertainty(np.arange(0)) is None:
        raise InputError(
            "samplers.estimator: one without uncertainty is not allowed for vds; allowed: ensemble"
        )
    rule = Disagreement()
    return GoalSampler(parts.goals, parts.estimator, rule, NEVER, parts.rng)
