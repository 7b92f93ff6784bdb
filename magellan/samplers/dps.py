"""DPS: the goal most likely to be partly solved next, by a hidden Markov model of each goal."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from magellan.competence.base import Group
from magellan.core.settings import Count, Fraction, Positive, Section
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule
from magellan.samplers.selection import nearest


class DpsSettings(Section):
    """The sampler `dps`."""

    prior: Positive = Field(1.0, description="Dirichlet prior of each transition.")
    decay: Fraction = Field(0.7, description="Factor per update on counts of transitions.")
    candidates: Count = Field(32, description="Goals drawn, of which the likeliest is practised.")


@register_sampler("dps", "DPS", settings=DpsSettings, epsilon=False)
class Dps(Rule):
    """Dynamics-predictive sampling (Mao et al. 2026, arXiv 2603.10887).

    States of a goal: no answer succeeds, some do, all do; observed by a group, else predicted.

    counts: Dirichlet parameters of the transitions, (n, to, from).
    before, state: distribution over states at the last update, and predicted for the next, (n, 3).

    Authors' code: recipe/dps/task_sampler.py at 5654d52, lines 62-115 and 148-208; constants of
    scripts/math. There the likeliest B of 32 B are played; here each draw is the likeliest of 32.

    A group is one observation. Single episodes never show a goal partly solved, unless a goal has
    two of them in one update. The prediction of a goal that is left drifts back to one third, so it
    comes back only where no others are known to be partly solved.
    """

    def start(self, n_arms: int) -> None:
        self.counts = np.full((n_arms, 3, 3), self.settings.prior)
        self.before, self.state = np.full((2, n_arms, 3), 1 / 3)
        self.solved, self.answers = np.zeros((2, n_arms))

    def observe_group(self, arm: int, group: Group) -> None:
        self.solved[arm] += group.solved
        self.answers[arm] += group.answers

    def end_update(self, arms: ArmStats) -> None:
        seen = np.flatnonzero(self.answers)
        now, rate = self.state.copy(), self.solved[seen] / self.answers[seen]
        now[seen] = np.eye(3)[1 + (rate == 1.0) - (rate == 0.0)]
        moved = now[:, :, None] * self.before[:, None, :] * self._transitions()
        seen_only = (self.answers > 0)[:, None, None] / moved.sum(axis=(1, 2), keepdims=True)
        kept = self.settings.decay * (self.counts - self.settings.prior) + self.settings.prior
        self.counts[...] = kept + moved * seen_only
        self.before[...] = now
        self.state[...] = (self._transitions() @ now[:, :, None])[:, :, 0]
        self.solved[:], self.answers[:] = 0, 0

    def _transitions(self) -> np.ndarray:
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    def weights(self, arms: ArmStats) -> np.ndarray:
        return nearest(np.round(self.state[:, 1], 12), 1.0, self.settings.candidates)
