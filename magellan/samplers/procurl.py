"""ProCuRL: softmax of p (1 - p), which favours goals neither too hard nor too easy."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Section
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import learnability


class ProcurlSettings(Section):
    """The sampler `procurl`."""

    beta: float = Field(20.0, gt=0, le=1e3, description="Weights are exp(beta p (1 - p)).")


@register_sampler(
    "procurl", "ProCuRL", estimator="per_goal", settings=ProcurlSettings, epsilon=False
)
def build(parts: SamplerParts, settings: ProcurlSettings) -> GoalSampler:
    """Proximal curriculum (Tzannetos et al. 2023, arXiv 2304.12877), with success as the value.

    Authors' code: abstract_classes/AbstractGymWrapper.py, `pick_curr_id`; beta is main.py's. There
    p is evaluated, or the critic's value; here it comes from practice. A goal never tried has p = 0
    and weight 1, the best one exp(beta / 4) = 148: the rule explores by itself.

    A group of answers is one outcome of the window, and a single group tells a success rate. A goal
    that failed at first comes back late, with the smallest weight.
    """

    def signal(now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
        return np.exp(settings.beta * learnability(now, delayed))

    return GoalSampler(parts.goals, parts.estimator, signal, NEVER, parts.rng)
