"""Tokens of goal prompts, put together from the tokens of their parts.

A world may say how its prompts are put together from few parts (`magellan.worlds.PromptParts`).
Where a tokenizer reads each part alone as it reads it in the prompt, the tokens of any number of
prompts follow from those of the parts. Whether it does is tried out on prompts in which every part
stands beside every part that can follow it; if not, the tokenizer reads each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magellan.core.codec import PADDING, PROMPT, Codec, Packed, stack
from magellan.worlds import GoalSet, PromptParts, World


class PromptTokens:
    """Packs the prompts that goals start with, standing on nothing.

    codec: text to tokens.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._composes: dict[tuple[str, str], bool] = {}
        self._parts: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def pack(self, goals: GoalSet, positions: Sequence[int] | np.ndarray) -> Packed:
        """Prompts of the goals at `positions` (n,), n > 0: equal to what the codec packs."""
        where = np.asarray(positions, dtype=np.int64)
        parts = goals.world.parts
        if parts is not None and self.composes(goals.world, goals.split):
            return self._composed(parts, goals, where)
        return self._read(goals, where)

    def composes(self, world: World, split: str) -> bool:
        """Whether this tokenizer reads the parts of the split's prompts as they read alone."""
        if world.parts is None:
            return False
        key = world.name, split
        if key not in self._composes:
            goals = world.parts.trial(split)
            where = np.arange(len(goals))
            composed = self._composed(world.parts, goals, where)
            pairs = zip(composed, self._read(goals, where), strict=True)
            self._composes[key] = all(np.array_equal(*pair) for pair in pairs)
        return self._composes[key]

    def _read(self, goals: GoalSet, positions: np.ndarray) -> Packed:
        prompts = [goals.prompt(int(position)) for position in positions]
        return stack(self._codec.pack(prompts, [()] * len(prompts)))

    def _read_parts(
        self, world: World, parts: PromptParts
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of all parts in a row, and of each part where it begins and how long it is."""
        if world.name not in self._parts:
            tokens = self._codec.encode(parts.texts())
            lengths = np.array([len(part) for part in tokens])
            begins = np.cumsum(lengths) - lengths
            self._parts[world.name] = np.concatenate(tokens), begins, lengths
        return self._parts[world.name]

    def _composed(self, known: PromptParts, goals: GoalSet, positions: np.ndarray) -> Packed:
        flat, begins, lengths = self._read_parts(goals.world, known)
        parts = known.of(goals, positions)
        long = lengths[parts]
        total = long.sum(axis=1)
        used = np.arange(total.max()) < total[:, None]
        # A token's place in `flat`: where its part begins there, plus its place in its part.
        before = np.cumsum(long.ravel()) - long.ravel()
        source = np.repeat(begins[parts].ravel() - before, long.ravel()) + np.arange(total.sum())
        tokens = np.zeros(used.shape, np.int32)
        tokens[used] = flat[source]
        return tokens, np.where(used, np.int8(PROMPT), np.int8(PADDING))
