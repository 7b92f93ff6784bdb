"""Sliding windows of outcomes, compared half against half: where both online baselines look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.errors import InputError


class OutcomeWindows(CompetenceEstimator):
    """The last `window` outcomes of each arm in ring buffers, and success rates of their halves.

    k outcomes are split at k // 2: delayed competence is the mean of the older half, current
    competence the mean of the newer half, which gets the odd one; both are 0 below two outcomes.
    Only arms that received an outcome are recomputed, so an update costs the same for any number
    of arms; memory is `window` + 24 bytes per arm.

    A subclass says which arm an outcome belongs to: its `update` calls `_append`.
    """

    def __init__(self, n_arms: int, window: int) -> None:
        if window < 2:
            raise InputError(
                f"window: {window}; must be at least 2 outcomes, to have a newer and an older half"
            )
        self._now = np.zeros(n_arms)
        self._delayed = np.zeros(n_arms)
        self._ring = np.zeros((n_arms, window), dtype=np.uint8)
        self._seen = np.zeros(
            n_arms, dtype=np.int64
        )  # outcomes ever received: the next goes to slot seen % window
        self._changed = np.empty(0, dtype=np.int64)

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        return self._now, self._delayed

    def changed_arms(self) -> np.ndarray:
        return self._changed

    def _append(self, arms: np.ndarray, success: np.ndarray) -> None:
        """Add outcomes (m,), oldest first; an arm may occur more than once."""
        window = self._ring.shape[1]
        for arm, outcome in zip(arms.tolist(), success.tolist(), strict=True):
            self._ring[arm, self._seen[arm] % window] = outcome
            self._seen[arm] += 1
        self._changed = np.unique(arms)
        self._recompute(self._changed)

    def _recompute(self, arms: np.ndarray) -> None:
        """Success rates of both halves for `arms` (k,)."""
        window = self._ring.shape[1]
        seen = self._seen[arms][:, None]
        held = np.minimum(seen, window)
        age_order = np.arange(window)  # 0 is the oldest outcome held
        outcomes = self._ring[arms[:, None], (seen - held + age_order) % window]
        half = held // 2
        older = np.sum(outcomes * (age_order < half), axis=1)
        newer = np.sum(outcomes * ((half <= age_order) & (age_order < held)), axis=1)
        half, held = half[:, 0], held[:, 0]
        self._delayed[arms] = older / np.maximum(half, 1)
        # A single outcome is all newer half: not yet a rate to compare with.
        self._now[arms] = np.where(held >= 2, newer / np.maximum(held - half, 1), 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Ring buffers (n_arms, window) uint8 and counts (n_arms,) int64; the rest follows."""
        return {"ring": self._ring.copy(), "seen": self._seen.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ring = np.asarray(state["ring"], dtype=np.uint8)
        if ring.shape != self._ring.shape:
            raise InputError(
                f"outcome windows: saved shape {ring.shape}; this run has {self._ring.shape}"
            )
        self._ring[:] = ring
        self._seen[:] = state["seen"]
        self._recompute(np.arange(len(self._seen)))
