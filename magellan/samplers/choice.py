"""Drawing positions in proportion to weights of which few change between draws."""

from __future__ import annotations

import math

import numpy as np

from magellan.core.errors import NotFiniteError

LARGEST_BLOCK = 1_024


class WeightedChoice:
    """Weights over n positions, with cumulative sums over blocks of about sqrt(n) and inside them.

    Changing k weights costs O(k sqrt(n)) and a draw O(sqrt(n)); one flat cumulative sum would cost
    O(n) after every change. Only blocks that ever had a positive weight are stored. Block sums are
    summed afresh from the weights, never added to, so that a resumed run, which sets all weights
    at once, draws the same as one that never stopped.
    """

    def __init__(self, n: int) -> None:
        self._block = min(math.isqrt(max(n - 1, 0)) + 1, LARGEST_BLOCK)
        n_blocks = -(-n // self._block)
        self._row_of = np.zeros(n_blocks, dtype=np.int64)  # 0: a block without weights
        self._rows = np.zeros((1, self._block))
        self._n_rows = 1
        self._sums = np.zeros(n_blocks)
        self._cumulative = np.zeros(n_blocks)
        self._n = n

    @property
    def weights(self) -> np.ndarray:
        """(n,) float64, a copy: for looking at, all n are written down."""
        return self._rows[self._row_of].reshape(-1)[: self._n]

    @property
    def size(self) -> int:
        """n."""
        return self._n

    @property
    def total(self) -> float:
        return float(self._cumulative[-1]) if self._n else 0.0

    def set(self, positions: np.ndarray, weights: np.ndarray) -> None:
        """Put new weights at `positions`; NotFiniteError if one is negative or not finite."""
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise NotFiniteError("goal weights must be finite and not negative")
        blocks, columns = np.divmod(positions, self._block)
        self._store(blocks[weights > 0])
        rows = self._row_of[blocks]
        stored = rows > 0
        self._rows[rows[stored], columns[stored]] = weights[stored]
        touched = np.unique(blocks[stored])
        self._sums[touched] = self._rows[self._row_of[touched]].sum(axis=1)
        self._cumulative = np.cumsum(self._sums)

    def _store(self, blocks: np.ndarray) -> None:
        """Give these blocks a row where they have none; storage doubles when it is full."""
        new = np.unique(blocks[self._row_of[blocks] == 0])
        self._row_of[new] = np.arange(self._n_rows, self._n_rows + len(new))
        self._n_rows += len(new)
        if self._n_rows > len(self._rows):
            more = max(self._n_rows, 2 * len(self._rows)) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Positions (size,) int64, with replacement, in proportion to the weights; total > 0.

        A weight of exactly 0 is never drawn: "right" steps past equal cumulative sums.
        """
        blocks = np.searchsorted(self._cumulative, rng.random(size) * self.total, side="right")
        inside = np.cumsum(self._rows[self._row_of[blocks]], axis=1)
        columns = (inside <= rng.random((size, 1)) * inside[:, -1:]).sum(axis=1)
        return blocks * self._block + columns
