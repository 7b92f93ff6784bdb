"""BOTS: as MoPPS, with posteriors that forget, and learn from predictions for other goals."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Fraction, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import nearest_draw


class BotsSettings(Section):
    """The sampler `bots`."""

    forget: Fraction = Field(0.1, description="lambda: share of all counts lost per update.")
    implicit: Fraction = Field(0.1, description="rho: weight of predictions of untried goals.")
    target: Fraction = Field(0.5, description="Success rate aimed at.")


@register_sampler("bots", "BOTS", estimator="learned", settings=BotsSettings, epsilon=False)
class Bots(Rule):
    """Bayesian online task selection (Shen et al. 2025, arXiv 2510.26374): a Thompson draw.

    Counts <- (1 - lambda) counts + lambda + answers; of goals not drawn, rho of those predicted.

    updates, drawn: how many there were, and groups of answers in them, (1,).

    Authors' code: modelscope/Trinity-RFT, trinity/buffer/selector, constants of examples/bots.
    There predictions interpolate between the pass rates of two reference models; here they are
    those of MAGELLAN's head. There the nearest B of all N goals are played; here each draw is the
    nearest of N / B, B the mean number of goals per update.

    A group adds its successes and failures. Forgetting brings back a goal that failed at first.
    """

    shared = ("updates", "drawn")

    def start(self, n_arms: int) -> None:
        self.won, self.lost = np.ones((2, n_arms))
        self.new_won, self.new_lost = np.zeros((2, n_arms))
        self.updates, self.drawn = np.zeros((2, 1))

    def observe_group(self, arm: int, group: Group) -> None:
        self.new_won[arm] += group.solved
        self.new_lost[arm] += group.answers - group.solved
        self.drawn += 1

    def end_update(self, arms: ArmStats) -> None:
        assert arms.now is not None
        answers = self.new_won + self.new_lost
        if not answers.any():
            return
        self.updates += 1
        n = self.settings.implicit * answers[answers > 0].mean()
        for count, new, rate in (
            (self.won, self.new_won, arms.now),
            (self.lost, self.new_lost, 1 - arms.now),
        ):
            new += np.where(answers > 0, 0.0, n * rate)
            count += self.settings.forget * (1.0 - count) + new
            new[:] = 0.0

    def weights(self, arms: ArmStats) -> np.ndarray:
        per_update = self.drawn[0] / max(self.updates[0], 1.0)
        among = max(len(self.won) / max(per_update, 1.0), 1.0)
        return nearest_draw(self.won, self.lost, self.settings.target, among)
