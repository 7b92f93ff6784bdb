"""Features of goals: what the language model makes of their prompts, before it learns anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from magellan.competence.prompt_tokens import PromptTokens

if TYPE_CHECKING:
    from magellan.backends import Backend
    from magellan.worlds import GoalSet

AT_ONCE = 4_096
"""Prompts that are packed together."""


class GoalFeatures:
    """The same at every moment of a run, so no state.

    backend: the language model.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend, self._prompts = backend, PromptTokens(backend.codec)

    def __call__(self, goals: GoalSet, positions: np.ndarray | None = None) -> np.ndarray:
        """Features of the goals at `positions` (n,), or of all: float32 (n, width).

        Raises:
            InputError: the backend does not tell how the model reads.
        """
        where = np.arange(len(goals)) if positions is None else np.asarray(positions)
        parts = [where[begin : begin + AT_ONCE] for begin in range(0, len(where), AT_ONCE)]
        read = [self._prompts.pack(goals, part) for part in parts]
        return np.concatenate([self._backend.representation(each, space="frozen") for each in read])
