"""Sliding windows of outcomes, newer half against older: used by both online baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.base import CompetenceEstimator
from magellan.core.errors import InputError
from magellan.core.parsing import checked_numbers
from magellan.core.settings import Section


class WindowSettings(Section):
    """Length of a window."""

    window: int = Field(100, ge=2, le=10**6, description="Outcomes kept per goal, or per category.")


class OutcomeWindows(CompetenceEstimator):
    """The last `window` outcomes of each arm in ring buffers, and success rates of their halves.

    k outcomes are split at k // 2: delayed competence is the mean of the older half, current
    competence the mean of the newer half, which gets the odd one; both are 0 below two outcomes.
    Arms get a row at their first outcome, and only arms with new outcomes are recomputed: time and
    memory (`window` + 24 bytes per practised arm) do not depend on the number of arms.

    A subclass maps outcomes to arms: its `update` calls `_append`.
    """

    def __init__(self, n_arms: int, window: int) -> None:
        if window < 2:
            raise InputError(
                f"window: {window}; must be at least 2 outcomes, to have a newer and an older half"
            )
        self._n_arms, self._window = n_arms, window
        self._changed = np.empty(0, dtype=np.int64)
        self._clear()

    def _renumber(self, n_arms: int, numbers: np.ndarray) -> None:
        """Switch to other arms; those in both sets keep their outcomes.

        n_arms: their new number.
        numbers: int64 (k,), new number of each `known` arm, -1: removed.
        """
        stay = np.flatnonzero(numbers >= 0)
        ring, seen = self._ring[stay + 1], self._seen[stay + 1]
        self._n_arms = n_arms
        self._clear()
        self._restore(numbers[stay].tolist(), ring, seen)

    def _clear(self) -> None:
        """Drop all outcomes; row 0 stands for all arms without outcomes, with competence 0."""
        self._row_of: dict[int, int] = {}
        self._ring: np.ndarray = np.zeros((1, self._window), dtype=np.uint8)
        # Outcomes so far; the next goes to slot seen % window.
        self._seen: np.ndarray = np.zeros(1, dtype=np.int64)
        self._now: np.ndarray = np.zeros(1)
        self._delayed: np.ndarray = np.zeros(1)

    def known(self) -> np.ndarray:
        """Arms with outcomes, in the order of their first one."""
        return np.fromiter(self._row_of, np.int64, len(self._row_of))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(which.tolist())
        return self._now[rows], self._delayed[rows]

    def changed(self) -> np.ndarray:
        return self._changed

    def _rows(self, arms: list[int]) -> list[int]:
        return [self._row_of.get(arm, 0) for arm in arms]

    def _add_rows(self, arms: list[int]) -> None:
        """Add a row for each arm without one; storage doubles when full."""
        for arm in arms:
            self._row_of.setdefault(arm, len(self._row_of) + 1)
        needed = len(self._row_of) + 1
        if needed > len(self._seen):
            more = max(needed, 2 * len(self._seen)) - len(self._seen)
            self._ring = np.pad(self._ring, ((0, more), (0, 0)))
            self._seen = np.pad(self._seen, (0, more))
            self._now = np.pad(self._now, (0, more))
            self._delayed = np.pad(self._delayed, (0, more))

    def _append(self, arms: np.ndarray, success: np.ndarray) -> None:
        """Add outcomes (m,), oldest first; an arm may occur more than once."""
        self._add_rows(arms.tolist())
        rows = self._rows(arms.tolist())
        for row, outcome in zip(rows, success.tolist(), strict=True):
            self._ring[row, self._seen[row] % self._window] = outcome
            self._seen[row] += 1
        self._changed = np.unique(arms)
        self._recompute(np.array(self._rows(self._changed.tolist()), dtype=np.int64))

    def _recompute(self, rows: np.ndarray) -> None:
        """Recompute the success rates of both halves for `rows` (k,)."""
        count = np.minimum(self._seen[rows], self._window)
        oldest = (self._seen[rows] - count) % self._window
        half = count // 2
        sums = np.zeros((len(rows), self._window + 1), dtype=np.int64)
        np.cumsum(self._ring[rows], axis=1, out=sums[:, 1:])
        older = _ring_sum(sums, oldest, half)
        newer = _ring_sum(sums, (oldest + half) % self._window, count - half)
        self._delayed[rows] = older / np.maximum(half, 1)
        # A single outcome has no older half to compare with.
        self._now[rows] = np.where(count >= 2, newer / np.maximum(count - half, 1), 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Arms with outcomes (k,) int64, their rings (k, window) uint8 and counts (k,) int64."""
        used = slice(1, len(self._row_of) + 1)
        return {
            "n_arms": self._n_arms,
            "arms": self.known(),
            "ring": self._ring[used].copy(),
            "seen": self._seen[used].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ring = np.asarray(state["ring"], dtype=np.uint8)
        saved, own = (state["n_arms"], ring.shape[1]), (self._n_arms, self._window)
        if saved != own:
            raise InputError(f"outcome windows: saved (arms, window) {saved}; this run has {own}")
        self._clear()
        arms = checked_numbers(state["arms"], "arms", (len(ring),), 0, self._n_arms - 1).tolist()
        seen = checked_numbers(state["seen"], "seen", (len(ring),), 1)
        if len({*arms}) < len(arms) or ring.max(initial=0) > 1:
            raise InputError("outcome windows: duplicate arms, or outcomes other than 0 or 1")
        self._restore(arms, ring, seen)

    def _restore(self, arms: list[int], ring: np.ndarray, seen: np.ndarray) -> None:
        """Fill empty windows with the outcomes of arms (k,): rings (k, window), counts (k,)."""
        self._add_rows(arms)
        rows = np.arange(1, len(ring) + 1)
        self._ring[rows], self._seen[rows] = ring, seen
        self._changed = self.known()
        self._recompute(rows)


def _ring_sum(sums: np.ndarray, first: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Sum of `length` (k,) slots of a ring from slot `first` (k,) on, wrapping: int64 (k,).

    sums: cumulative sums of each ring, from 0: (k, slots + 1).
    """
    slots, row, end = sums.shape[1] - 1, np.arange(len(sums)), first + length
    straight = sums[row, np.minimum(end, slots)] - sums[row, first]
    return straight + sums[row, np.maximum(end - slots, 0)]
