"""Features of goals: the untrained language model's representation of their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from magellan.competence.prompt_tokens import PromptTokens
from magellan.core.codec import stack

if TYPE_CHECKING:
    from magellan.backends import Backend
    from magellan.worlds import GoalSet

BATCH = 4_096
"""Prompts per call of the backend."""


class GoalFeatures:
    """Constant during a run, hence without state."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._prompts = backend, PromptTokens(backend.codec)

    def __call__(self, goals: GoalSet, positions: np.ndarray | None = None) -> np.ndarray:
        """Features of the goals at `positions` (n,), or of all: float32 (n, width).

        Raises:
            InputError: the backend has no representations.
        """
        positions = np.arange(len(goals)) if positions is None else np.asarray(positions)
        starts = range(0, len(positions), BATCH)
        batches = [self._prompts.pack(goals, positions[start : start + BATCH]) for start in starts]
        return np.concatenate([self._backend.representation(b, space="frozen") for b in batches])

    def of(self, prompts: Sequence[str]) -> np.ndarray:
        """Features of any prompts: float32 (n, width); InputError if one has no tokens."""
        packed = stack(self._backend.codec.pack(prompts, [()] * len(prompts)))
        return self._backend.representation(packed, space="frozen")
