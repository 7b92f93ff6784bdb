"""PCL: goals whose predicted success is nearest to one half."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Section
from magellan.samplers.base import ConstantEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.rules import Rule, Seen
from magellan.samplers.selection import nearest


class PclSettings(Section):
    """The sampler `pcl`."""

    candidates: Count = Field(4, description="Goals of which the nearest is practised.")


class Pcl(Rule):
    """Looks at the prediction of now alone."""

    def __init__(self, settings: PclSettings) -> None:
        self._settings = settings

    def weights(self, seen: Seen) -> np.ndarray:
        assert seen.now is not None
        return nearest(seen.now, 0.5, self._settings.candidates)


@register_sampler("pcl", "PCL", estimator="learned", settings=PclSettings, epsilon=False)
def build(parts: SamplerParts, settings: PclSettings) -> GoalSampler:
    """Prompt curriculum learning (Gao et al. 2025, arXiv 2510.01135).

    There a value model as large as the policy is trained beside it, and the m nearest of k m
    prompts are played; here it is MAGELLAN's head, and each draw is the nearest of k.
    """
    return GoalSampler(parts.goals, parts.estimator, Pcl(settings), ConstantEpsilon(0.0), parts.rng)
