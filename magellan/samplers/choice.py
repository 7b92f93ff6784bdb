"""Drawing positions in proportion to weights of which few change between draws."""

from __future__ import annotations

import math

import numpy as np


class WeightedChoice:
    """Weights over n positions, with cumulative sums over blocks of about sqrt(n) and inside them.

    Changing k weights costs O(k sqrt(n)) and a draw O(sqrt(n)); one flat cumulative sum would cost
    O(n) after every change. Block sums are summed afresh from the weights, never added to, so that
    a resumed run, which sets all weights at once, draws the same as one that never stopped.
    """

    def __init__(self, n: int) -> None:
        self._block = math.isqrt(max(n - 1, 0)) + 1
        self._blocks = np.zeros((-(-n // self._block), self._block))
        self._cumulative = np.zeros(len(self._blocks))
        self._sums = np.zeros(len(self._blocks))
        self._n = n

    @property
    def weights(self) -> np.ndarray:
        """(n,) float64; to be read, not written."""
        return self._blocks.reshape(-1)[: self._n]

    @property
    def total(self) -> float:
        return float(self._cumulative[-1])

    def set(self, positions: np.ndarray | slice, weights: np.ndarray) -> None:
        """Put new weights at `positions`. Raises ValueError if one is negative or not finite."""
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(
                "goal weights must be finite and not negative: did the competence diverge?"
            )
        self.weights[positions] = weights
        rows = slice(None) if isinstance(positions, slice) else positions // self._block
        self._sums[rows] = self._blocks[rows].sum(axis=1)
        self._cumulative = np.cumsum(self._sums)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Positions (size,) int64, with replacement, in proportion to the weights; total > 0.

        A weight of exactly 0 is never drawn: "right" steps past equal cumulative sums.
        """
        rows = np.searchsorted(self._cumulative, rng.random(size) * self.total, side="right")
        inside = np.cumsum(self._blocks[rows], axis=1)
        columns = (inside <= rng.random((size, 1)) * inside[:, -1:]).sum(axis=1)
        return rows * self._block + columns
