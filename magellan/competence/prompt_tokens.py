"""Tokens of goal prompts, composed from the tokens of their parts.

A world may define its prompts as sequences of a few parts (`magellan.worlds.PromptParts`). If a
tokenizer splits each part alone as it does within a prompt, the tokens of any number of prompts
follow from those of the parts. This is tested on prompts that cover every pair of adjacent parts;
if it fails, the tokenizer reads each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magellan.core.codec import PADDING, PROMPT, Codec, Packed, stack
from magellan.worlds import GoalSet, PromptParts, World


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

    def _tokenize_parts(
        self, world: World, parts: PromptParts
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Concatenated tokens of all parts; begin and length of each part in them."""
        if world.name not in self._parts:
            tokens = self._codec.encode(parts.texts())
            lengths = np.array([len(part) for part in tokens])
            begins = np.cumsum(lengths) - lengths
            self._parts[world.name] = np.concatenate(tokens), begins, lengths
        return self._parts[world.name]

    def _compose(self, prompt_parts: PromptParts, goals: GoalSet, positions: np.ndarray) -> Packed:
        flat, begins, lengths = self._tokenize_parts(goals.world, prompt_parts)
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
