"""Exploitation: draw arms in proportion to a signal of competence, now and delayed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import NotFiniteError

Signal = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (n,) each -> non-negative weights (n,) to draw in proportion to."""


class Choice(ABC):
    """Draws among the exploited arms."""

    @abstractmethod
    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        """Learn from the episodes since the last policy update; `arms` (m,): the arm of each."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        """Draw arms with replacement, int64 (n,); None while all weights are 0."""

    @abstractmethod
    def probabilities(self) -> np.ndarray | None:
        """Probability of each arm, float64 (n_arms,), sums to one; None where `draw` is None."""

    def inherit_state(self, former: Choice, numbers: np.ndarray) -> None:  # noqa: B027
        """Take over the memory of a choice over other goals; by default there is none.

        numbers: int64 (n_arms,), number of each arm in `former`, -1: new.
        """

    def state_dict(self) -> dict[str, Any]:
        """Its own memory, as numpy arrays and JSON-serialisable values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore a `state_dict`; the estimator's state must be restored first."""


LARGEST_BLOCK = 1_024


class WeightedChoice:
    """Weighted draws from n positions, with cumulative sums over blocks of about sqrt(n) weights.

    Changing k weights costs O(k sqrt(n)) and a draw O(sqrt(n)); a flat cumulative sum would cost
    O(n) per change. Only blocks that ever had a positive weight are stored. Block sums are always
    recomputed from the weights, never incremented, so that a resumed run, which sets all weights
    at once, draws the same as an uninterrupted one.
    """

    def __init__(self, n: int) -> None:
        self._block = min(math.isqrt(max(n - 1, 0)) + 1, LARGEST_BLOCK)
        n_blocks = -(-n // self._block)
        self._row_of = np.zeros(n_blocks, dtype=np.int64)  # 0: no positive weight yet
        self._rows = np.zeros((1, self._block))
        self._n_rows = 1
        self._sums = np.zeros(n_blocks)
        self._cumulative = np.zeros(n_blocks)
        self._n = n

    @property
    def weights(self) -> np.ndarray:
        """All weights, float64 (n,), a copy."""
        return self._rows[self._row_of].reshape(-1)[: self._n]

    @property
    def total(self) -> float:
        return float(self._cumulative[-1]) if self._n else 0.0

    def set(self, positions: np.ndarray, weights: np.ndarray) -> None:
        """Set weights, finite and not negative, at `positions`."""
        blocks, columns = np.divmod(positions, self._block)
        self._add_rows(blocks[weights > 0])
        rows = self._row_of[blocks]
        stored = rows > 0
        self._rows[rows[stored], columns[stored]] = weights[stored]
        changed = np.unique(blocks[stored])
        self._sums[changed] = self._rows[self._row_of[changed]].sum(axis=1)
        self._cumulative = np.cumsum(self._sums)

    def _add_rows(self, blocks: np.ndarray) -> None:
        """Add a row for each of these blocks without one; storage doubles when full."""
        new = np.unique(blocks[self._row_of[blocks] == 0])
        self._row_of[new] = np.arange(self._n_rows, self._n_rows + len(new))
        self._n_rows += len(new)
        if self._n_rows > len(self._rows):
            more = max(self._n_rows, 2 * len(self._rows)) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Draw positions int64 (size,) with replacement, in proportion to weights; total > 0.

        A weight of exactly 0 is never drawn: side "right" skips equal cumulative sums.
        """
        blocks = np.searchsorted(self._cumulative, rng.random(size) * self.total, side="right")
        sums = np.cumsum(self._rows[self._row_of[blocks]], axis=1)
        columns = (sums <= rng.random((size, 1)) * sums[:, -1:]).sum(axis=1)
        return blocks * self._block + columns


class SignalChoice(Choice):
    """Draws the estimator's candidates in proportion to signal(now, delayed).

    exploited: arms that may have a weight, int64; None: all.

    Raises:
        NotFiniteError: a weight is negative or not finite; from every method.
    """

    def __init__(
        self,
        estimator: CompetenceEstimator,
        signal: Signal,
        n_arms: int,
        exploited: np.ndarray | None,
    ) -> None:
        self._estimator, self._signal = estimator, signal
        self._n_arms, self._exploited = n_arms, exploited
        self._set_all_weights()

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        if self._choice.total == 0.0:
            return None
        drawn = self._choice.draw(rng, n)
        return drawn if self._candidates is None else self._candidates[drawn]

    def probabilities(self) -> np.ndarray | None:
        if self._choice.total == 0.0:
            return None
        weights = np.zeros(self._n_arms)
        arms = slice(None) if self._candidates is None else self._candidates
        weights[arms] = self._choice.weights
        return weights / weights.sum()

    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        if self._estimator.candidates() is self._candidates:
            self._update_weights(self._estimator.changed())
        else:
            self._set_all_weights()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._set_all_weights()

    def _set_all_weights(self) -> None:
        """Compute all weights, when the candidates or the estimator's state are new."""
        candidates = self._candidates = self._estimator.candidates()
        size = self._n_arms if candidates is None else len(candidates)
        self._choice = WeightedChoice(size)
        nonzero = self._estimator.known()
        if len(nonzero) < size:
            untried = self._weights(np.zeros(1), np.zeros(1))[0]
            if untried > 0.0:
                self._set_weights(np.arange(size), np.full(size, untried))
        self._update_weights(nonzero)

    def _update_weights(self, candidates: np.ndarray) -> None:
        """Recompute the weights of these candidates from their competence."""
        self._set_weights(candidates, self._weights(*self._estimator.competence(candidates)))

    def _weights(self, now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
        weights = self._signal(now, delayed)
        invalid = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if len(invalid):
            i = invalid[0]
            raise NotFiniteError(
                "goal weights must be finite and not negative: the signal gives "
                f"{weights[i]:g} for competence {now[i]:g} now and {delayed[i]:g} delayed"
            )
        return weights

    def _set_weights(self, candidates: np.ndarray, weights: np.ndarray) -> None:
        if self._exploited is not None:
            arms = candidates if self._candidates is None else self._candidates[candidates]
            weights = np.where(np.isin(arms, self._exploited), weights, 0.0)
        with np.errstate(over="ignore"):
            self._choice.set(candidates, weights)
        if not np.isfinite(self._choice.total):
            raise NotFiniteError("goal weights must have a finite sum: the signal's have not")
