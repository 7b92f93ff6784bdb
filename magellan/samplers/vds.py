"""VDS: goals of whose value several critics disagree."""

from __future__ import annotations

import numpy as np

from magellan.core.errors import InputError
from magellan.core.settings import NoSettings
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen


class Disagreement(Rule):
    """Weighs goals by the standard deviation of what is predicted of them."""

    def weights(self, seen: Seen) -> np.ndarray:
        assert seen.uncertainty is not None
        return seen.uncertainty


@register_sampler("vds", "VDS", estimator="ensemble", epsilon=False)
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """Value disagreement sampling (Zhang, Abbeel, Pinto 2020, arXiv 2006.09641).

    Authors' code: baselines/her/goal_sampler.py, standard deviation of three critics. There 1,000
    goals are drawn first, and of these one by its weight; here one of all goals by its weight.
    """
    if parts.estimator is None or parts.estimator.uncertainty(np.arange(0)) is None:
        raise InputError(
            "samplers.estimator: one that does not tell its uncertainty is not allowed for vds; "
            "allowed: ensemble"
        )
    rule = Disagreement()
    return GoalSampler(parts.goals, parts.estimator, rule, ConstantEpsilon(0.0), parts.rng)
