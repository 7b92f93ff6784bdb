"""How a sampler exploits: which arm a signal of competence, now and delayed, makes it practise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import NotFiniteError

Signal = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (n,) each, to non-negative weights (n,), to draw in proportion to."""


class Choice(ABC):
    """Chooses among the exploited arms."""

    @abstractmethod
    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        """Hear of the episodes since the last policy update, and of the arm (m,) of each."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        """Arms with replacement, int64 (n,); None while nothing is known that tells arms apart."""

    @abstractmethod
    def probabilities(self) -> np.ndarray | None:
        """Of each arm, float64 (n_arms,), summing to one; None where `draw` gives None."""

    def carry_on(self, former: Choice, numbers: np.ndarray) -> None:  # noqa: B027
        """Take over what one for other goals remembers; most leave that to their estimator.

        numbers: int64 (n_arms,), what each arm was there, -1 for a new one.
        """

    def state_dict(self) -> dict[str, Any]:
        """What it remembers itself, as numpy arrays and JSON-able values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Put back what `state_dict` gave, after the state of the estimator."""


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


class SignalChoice(Choice):
    """Draws the estimator's candidates in proportion to signal(now, delayed).

    estimator: gives competence per arm.
    n_arms: how many there are.
    exploited: arms with a weight, int64; None: all.

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
        self._weigh_all()

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        if self._choice.total == 0.0:
            return None
        drawn = self._choice.draw(rng, n)
        return drawn if self._candidates is None else self._candidates[drawn]

    def probabilities(self) -> np.ndarray | None:
        if self._choice.total == 0.0:
            return None
        chosen = np.zeros(self._n_arms)
        where = slice(None) if self._candidates is None else self._candidates
        chosen[where] = self._choice.weights
        return chosen / chosen.sum()

    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        if self._estimator.candidates() is self._candidates:
            self._weigh(self._estimator.changed())
        else:
            self._weigh_all()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._weigh_all()

    def _weigh_all(self) -> None:
        """Weights of the candidates, when these or the estimator are new."""
        candidates = self._candidates = self._estimator.candidates()
        size = self._n_arms if candidates is None else len(candidates)
        self._choice = WeightedChoice(size)
        known = self._estimator.known()
        if len(known) < size:
            untried = self._weights(np.zeros(1), np.zeros(1))[0]
            if untried > 0.0:
                self._set(np.arange(size), np.full(size, untried))
        self._weigh(known)

    def _weigh(self, which: np.ndarray) -> None:
        """Weights of the candidates `which` from their competence; others keep theirs."""
        self._set(which, self._weights(*self._estimator.competence(which)))

    def _weights(self, now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
        weights = self._signal(now, delayed)
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            weight, *told = (float(each[wrong][0]) for each in (weights, now, delayed))
            raise NotFiniteError(
                "goal weights must be finite and not negative: the signal gives "
                f"{weight:g} for competence {told[0]:g} now and {told[1]:g} delayed"
            )
        return weights

    def _set(self, which: np.ndarray, weights: np.ndarray) -> None:
        if self._exploited is not None:
            arms = which if self._candidates is None else self._candidates[which]
            weights = np.where(np.isin(arms, self._exploited), weights, 0.0)
        self._choice.set(which, weights)
