"""Rules that learn once for a batch of episodes, from the mean of each arm in it."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from magellan.samplers.rules import Rule


class BatchRule(Rule):
    """Collects episodes over policy updates and learns from a batch of them.

    What a paper calls a step trains on hundreds of episodes at once; a policy update here often on
    less than one of each arm. A subclass has `learn`, makes its own memory in `start`, too, and
    its settings have the size `batch`.

    heard: the number of an episode that counts, its success or its advantage.
    """

    heard: ClassVar[Literal["success", "advantage"]] = "success"

    def start(self, n_arms: int) -> None:
        self.count, self.total = np.zeros(n_arms), np.zeros(n_arms)

    def hear(self, arm: int, success: float, advantage: float) -> None:
        self.count[arm] += 1
        self.total[arm] += success if self.heard == "success" else advantage
        if self.count.sum() >= self.settings.batch:
            self.learn(self.count, self.total)
            self.count[:], self.total[:] = 0, 0

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        """Learn from a batch: episodes and their sum of what is `heard`, float64 (n_arms,) each."""
        raise NotImplementedError
