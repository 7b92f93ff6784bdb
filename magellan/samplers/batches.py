"""Rules that learn once per batch of episodes, from the sums of each arm."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from magellan.samplers.rules import Rule


class BatchRule(Rule):
    """Collects episodes over policy updates and learns from a batch of them.

    A step in the papers covers hundreds of episodes; a policy update here often has less than one
    per arm. A subclass defines `learn`, may extend `start`, and has a setting `batch`, the size.

    learns_from: the quantity summed over episodes.
    """

    learns_from: ClassVar[Literal["success", "advantage"]] = "success"

    def start(self, n_arms: int) -> None:
        self.count, self.total = np.zeros(n_arms), np.zeros(n_arms)

    def observe(self, arm: int, success: float, advantage: float) -> None:
        self.count[arm] += 1
        self.total[arm] += success if self.learns_from == "success" else advantage
        if self.count.sum() >= self.settings.batch:
            self.learn(self.count, self.total)
            self.count[:], self.total[:] = 0, 0

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        """Learn from a batch: episodes and sum of `learns_from` per arm, float64 (n_arms,) each."""
        raise NotImplementedError
