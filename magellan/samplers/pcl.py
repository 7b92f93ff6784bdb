"""PCL: the goal whose predicted success is nearest to one half."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.core.settings import Count, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import nearest


class PclSettings(Section):
    """The sampler `pcl`."""

    candidates: Count = Field(4, description="Goals drawn, of which the nearest is practised.")


@register_sampler("pcl", "PCL", estimator="learned", settings=PclSettings, epsilon=False)
class Pcl(Rule):
    """Prompt curriculum learning (Gao et al. 2025, arXiv 2510.01135).

    Nearest of k uniform draws, by current competence.

    There a value model as large as the policy makes the predictions, and the m nearest of k m
    prompts are played; here MAGELLAN's head predicts, and each draw is the nearest of k.

    A group of answers is one episode, labelled with its share of successes.
    """

    def weights(self, arms: ArmStats) -> np.ndarray:
        assert arms.now is not None
        # Predictions for equal goals differ by the rounding of float32.
        return nearest(np.round(arms.now, 5), 0.5, self.settings.candidates)
