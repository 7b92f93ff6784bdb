"""DUMP: softmax over groups of an upper confidence bound on the mean |advantage|."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Count, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import softmax


class DumpSettings(Section):
    """The sampler `dump`."""

    temperature: Positive = Field(0.1, description="Of the softmax; towards 0: the best only.")
    window: Count = Field(300, description="Advantages kept per group.")


@register_sampler("dump", "DUMP", settings=DumpSettings, epsilon=False, arms="categories")
class Dump(Rule):
    """DUMP (Wang et al. 2025, arXiv 2504.09710), with no other exploration.

    UCB: mean |advantage| + sqrt(2 ln(N + 1) / (n + 1)); n episodes of the group, N in all.
    Bound and constants: github.com/ZhentingWang/DUMP, verl/utils/curriculum_learning.py. Window and
    n count answers, as there; each has the mean |advantage| of its group.
    """

    wants_advantage = True

    def start(self, n_arms: int) -> None:
        self.heard, self.ring = np.zeros(n_arms), np.zeros((n_arms, self.settings.window))

    def observe_group(self, arm: int, group: Group) -> None:
        for _ in range(group.answers):
            self.ring[arm, int(self.heard[arm]) % self.settings.window] = group.advantage
            self.heard[arm] += 1

    def weights(self, arms: ArmStats) -> np.ndarray:
        mean = self.ring.sum(axis=1) / self.heard.clip(1, self.settings.window)
        bonus = np.sqrt(2 * np.log(self.heard.sum() + 1) / (self.heard + 1))
        return softmax(mean + bonus, self.settings.temperature)
