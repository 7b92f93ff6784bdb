"""Informative: groups of goals by the chance that answers to one of their goals will differ."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule


class InformativeSettings(Section):
    """The sampler `informative`."""

    answers: int = Field(8, ge=2, le=10**4, description="n: answers to a goal.")
    decay: Fraction = Field(0.95, description="Factor per update on successes and failures.")
    reversion: float = Field(2.0, ge=0, le=1e6, description="Answers added per update, half right.")
    floor: Fraction = Field(0.05, description="Share of draws spread evenly over the groups.")


@register_sampler(
    "informative",
    "Informative groups",
    settings=InformativeSettings,
    epsilon=False,
    arms="categories",
)
class Informative(Rule):
    """Learnability by group outcomes, with reversion mass, of marin (issue 8765); it has no paper.

    Mean of 1 - p^n - (1 - p)^n over p from Beta(1 + successes, 1 + failures).

    Code: marin-community/marin, skyrl_train curriculum sampler, kind `learnability` weighted by
    `group-informative`; reversion of its fourth round, other constants its defaults. There p is
    drawn once per update for all groups; here the weights are means over such draws.

    A batch of answers counts as successes and failures of their group of goals. What is added per
    update brings back a group that could not be solved at first.
    """

    def start(self, n_arms: int) -> None:
        self.won, self.lost = np.zeros((2, n_arms))
        self.new_won, self.new_lost = np.zeros((2, n_arms))

    def observe_group(self, arm: int, group: Group) -> None:
        self.new_won[arm] += group.solved
        self.new_lost[arm] += group.answers - group.solved

    def end_update(self, arms: ArmStats) -> None:
        for count, new in ((self.won, self.new_won), (self.lost, self.new_lost)):
            count[:] = self.settings.decay * count + new + self.settings.reversion / 2
            new[:] = 0.0

    def weights(self, arms: ArmStats) -> np.ndarray:
        won, lost, floor = 1.0 + self.won, 1.0 + self.lost, self.settings.floor
        more = np.arange(self.settings.answers)[:, None]
        # The mean of p^n is the product of (successes + i) / (answers + i), i below n.
        alike = [((count + more) / (won + lost + more)).prod(axis=0) for count in (won, lost)]
        shares = (1.0 - alike[0] - alike[1]).clip(1e-12)
        return np.maximum(shares / shares.sum(), floor / len(won))
