"""CDAS: goals whose difficulty is nearest to the agent's ability, half easier and half harder."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import Group
from magellan.samplers.registry import register_sampler
from magellan.samplers.rules import ArmStats, Rule


@register_sampler("cdas", "CDAS", epsilon=False)
class Cdas(Rule):
    """Competence-difficulty alignment (Kong et al. 2025, arXiv 2505.17652), no constants.

    Difficulty: mean of expected minus observed success; ability falls by its mean change.

    batch: goals in the last update that had any, (1,).

    Authors' code: DeyangKong/CDAS, verl/utils/dataset/rl_cdas_dataset.py at ae9aad2, lines 25-141.
    There B goals are played once each, as many as fit a batch; here draws are uniform over the same
    goals, B the goals of the last update, and equally difficult ones share places.

    A group is one observation of success. A goal outside the batch has probability 0, until ability
    moves towards its difficulty.
    """

    shared = ("ability", "batch")

    def start(self, n_arms: int) -> None:
        self.difficulty, self.seen = np.zeros(n_arms), np.ones(n_arms)
        self.solved, self.answers = np.zeros((2, n_arms))
        self.ability, self.batch = np.zeros((2, 1))

    def observe_group(self, arm: int, group: Group) -> None:
        self.solved[arm] += group.solved
        self.answers[arm] += group.answers

    def end_update(self, arms: ArmStats) -> None:
        new = np.flatnonzero(self.answers)
        if not len(new):
            return
        self.seen[new] += 1
        expected = 1.0 / (1.0 + np.exp(self.difficulty[new] - self.ability))
        surprise = expected - self.solved[new] / self.answers[new]
        change = (surprise - self.difficulty[new]) / self.seen[new]
        self.difficulty[new] += change
        self.ability -= change.sum() / len(self.difficulty)
        self.batch[:] = len(new)
        self.solved[:], self.answers[:] = 0, 0

    def weights(self, arms: ArmStats) -> np.ndarray:
        above = np.round(self.difficulty - self.ability, 12)
        batch = min(self.batch[0], len(above)) or len(above)
        easier, harder = (above <= 0).sum(), (above > 0).sum()
        from_easier = min(easier, max(batch / 2, batch - harder))
        weights = first(-above, above <= 0, from_easier)
        return weights + first(above, above > 0, batch - from_easier)


def first(distance: np.ndarray, among: np.ndarray, places: float) -> np.ndarray:
    """Share of a place of each goal (n,) if the nearest `among` them get `places`, ties alike."""
    shares = np.zeros(len(distance))
    _, group, counts = np.unique(distance[among], return_inverse=True, return_counts=True)
    left = places - np.concatenate([[0], np.cumsum(counts)[:-1]])
    shares[among] = (np.clip(left, 0.0, counts) / counts)[group]
    return shares
