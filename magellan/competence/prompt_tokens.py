"""Tokens of goal prompts, put together from the tokens of their parts.

A goal's prompt is made of few parts: the goal line, the names of four objects, and the rest, which
is the same in all. Where a tokenizer reads each part alone as it reads it in the prompt, the tokens
of any number of prompts follow from those of some 150 parts. Whether it does is tried out on
prompts in which every part stands beside every part that can follow it; if not, the tokenizer
reads each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property

import numpy as np

from magellan.agent.packing import Codec, stack
from magellan.agent.places import PADDING, PROMPT
from magellan.worlds.little_zoo.codes import SPLITS, decode
from magellan.worlds.little_zoo.goals import GoalSet, GoalSpace
from magellan.worlds.little_zoo.text import initial_prompt
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN, OBJECTS, display_name
from magellan.worlds.little_zoo.world import SCENE_SIZE, VERBS, goal_text

Packed = tuple[np.ndarray, np.ndarray]
"""Padded tokens int32 and segments int8, both (n, length), as `magellan.agent.packing.stack`."""


class PromptTokens:
    """Packs the prompts that goals start with, standing on nothing.

    codec: text to tokens.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._composes: dict[str, bool] = {}

    def pack(self, goals: GoalSet, positions: Sequence[int] | np.ndarray) -> Packed:
        """Prompts of the goals at `positions` (n,), n > 0: equal to what the codec packs."""
        where = np.asarray(positions, dtype=np.int64)
        if self.composes(goals.split):
            return self._composed(goals, where)
        return self._read(goals, where)

    def composes(self, split: str) -> bool:
        """Whether this tokenizer reads the parts of the split's prompts as they read alone."""
        if split not in self._composes:
            goals = GoalSpace(neighbours(split), split)
            where = np.arange(len(goals))
            pairs = zip(self._composed(goals, where), self._read(goals, where), strict=True)
            self._composes[split] = all(np.array_equal(*pair) for pair in pairs)
        return self._composes[split]

    def _read(self, goals: GoalSet, positions: np.ndarray) -> Packed:
        prompts = [goals.prompt(int(position)) for position in positions]
        return stack(self._codec.pack(prompts, [()] * len(prompts)))

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of all parts in a row, and of each part where it begins and how long it is."""
        tokens = self._codec.encode(prompt_parts())
        lengths = np.array([len(part) for part in tokens])
        return np.concatenate(tokens), np.cumsum(lengths) - lengths, lengths

    def _composed(self, goals: GoalSet, positions: np.ndarray) -> Packed:
        flat, begins, lengths = self._parts
        parts = parts_of(*decode(goals.codes_at(positions), goals.split))
        long = lengths[parts]
        total = long.sum(axis=1)
        used = np.arange(total.max()) < total[:, None]
        # A token's place in `flat`: where its part begins there, plus its place in its part.
        before = np.cumsum(long.ravel()) - long.ravel()
        source = np.repeat(begins[parts].ravel() - before, long.ravel()) + np.arange(total.sum())
        tokens = np.zeros(used.shape, np.int32)
        tokens[used] = flat[source]
        return tokens, np.where(used, np.int8(PROMPT), np.int8(PADDING))


@cache
def prompt_parts() -> list[str]:
    """Goal lines by verb and target, names of first objects, names of later ones, the rest."""
    names = [display_name(o, grown=False) for o in range(len(OBJECTS))]
    scene = (0,) * SCENE_SIZE
    seen = ", ".join(names[o] for o in scene)
    heads = []
    for verb in range(len(VERBS)):
        for target in range(len(OBJECTS)):
            head, rest = initial_prompt(goal_text(verb, target), scene).split(f" {seen}")
            heads.append(head)
    return [*heads, *(f" {name}" for name in names), *(f", {name}" for name in names), rest]


def parts_of(verbs: np.ndarray, targets: np.ndarray, scenes: np.ndarray) -> np.ndarray:
    """Parts of prompts, as positions in `prompt_parts`: int64 (n, 6).

    verbs, targets: (n,); scenes: (n, 4).
    """
    heads = len(VERBS) * len(OBJECTS)
    later = np.where(np.arange(SCENE_SIZE) == 0, heads, heads + len(OBJECTS))
    rest = np.full(len(verbs), heads + 2 * len(OBJECTS))
    return np.column_stack([verbs * len(OBJECTS) + targets, scenes + later, rest])


def neighbours(split: str) -> np.ndarray:
    """Codes of prompts in which every part stands beside every part that can follow it, int64."""
    space = SPLITS[split]
    families = len(space.targets) * len(VERBS)
    codes = []
    for offset in range(max(families, NUM_TRAIN)):
        for first in range(NUM_TRAIN):
            code = offset % families
            for place in range(space.free):
                code = code * NUM_TRAIN + (first + (place % 2) * offset) % NUM_TRAIN
            codes.append(code)
    return np.array(codes)
