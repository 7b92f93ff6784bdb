"""What the language model reads of goals: tokens of their prompts, and features.

Tokens of prompts are composed from the tokens of their parts.

A world may define its prompts as sequences of a few parts (`magellan.worlds.PromptParts`). If a
tokenizer splits each part alone as it does within a prompt, the tokens of any number of prompts
follow from those of the parts. This is tested on prompts that cover every pair of adjacent parts;
if it fails, the tokenizer reads each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from magellan.core.codec import PADDING, PROMPT, Codec, Packed, stack
from magellan.worlds import GoalSet, PromptParts, World

if TYPE_CHECKING:
    from magellan.backends import Backend

BATCH = 4_096
"""Prompts per call of the backend."""


class PromptTokens:
    """Packs the first prompts of goals, standing on nothing."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._composes: dict[tuple[str, str], bool] = {}
        self._parts: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def pack(self, goals: GoalSet, positions: Sequence[int] | np.ndarray) -> Packed:
        """Packed prompts of the goals at `positions` (n,), n > 0, equal to the codec's."""
        positions = np.asarray(positions, dtype=np.int64)
        parts = goals.world.parts
        if parts is not None and self.composes(goals.world, goals.split):
            return self._compose(parts, goals, positions)
        return self._tokenize(goals, positions)

    def composes(self, world: World, split: str) -> bool:
        """Whether this tokenizer splits the parts of the split's prompts as it does alone."""
        if world.parts is None:
            return False
        key = world.name, split
        if key not in self._composes:
            goals = world.parts.trial(split)
            positions = np.arange(len(goals))
            composed = self._compose(world.parts, goals, positions)
            pairs = zip(composed, self._tokenize(goals, positions), strict=True)
            self._composes[key] = all(np.array_equal(*pair) for pair in pairs)
        return self._composes[key]

    def _tokenize(self, goals: GoalSet, positions: np.ndarray) -> Packed:
        prompts = [goals.prompt(int(position)) for position in positions]
        return stack(self._codec.pack(prompts, [()] * len(prompts)))

    def _compose(self, prompt_parts: PromptParts, goals: GoalSet, positions: np.ndarray) -> Packed:
        name = goals.world.name
        if name not in self._parts:  # tokens of all parts; begin and length of each in them
            encoded = self._codec.encode(prompt_parts.texts())
            sizes = np.array([len(part) for part in encoded])
            self._parts[name] = np.concatenate(encoded), np.cumsum(sizes) - sizes, sizes
        flat, begins, lengths = self._parts[name]
        parts = prompt_parts.of(goals, positions)
        part_lengths = lengths[parts]
        total = part_lengths.sum(axis=1)
        used = np.arange(total.max()) < total[:, None]
        # Index of a token in `flat`: begin of its part, plus its index within the part.
        repeats = part_lengths.ravel()
        before = np.cumsum(repeats) - repeats
        source = np.repeat(begins[parts].ravel() - before, repeats) + np.arange(total.sum())
        tokens = np.zeros(used.shape, np.int32)
        tokens[used] = flat[source]
        return tokens, np.where(used, np.int8(PROMPT), np.int8(PADDING))


class GoalFeatures:
    """The untrained language model's representation of goal prompts.

    Constant during a run, hence without state.
    """

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
