"""Prompts put together from parts: the goal line, the names of four objects, and the rest.

The rest is the same in all prompts at the start of an episode, so there are some 150 parts.
"""

from functools import cache

import numpy as np

from magellan.worlds.base import GoalSet, PromptParts
from magellan.worlds.little_zoo.codes import SPLITS, decode
from magellan.worlds.little_zoo.goals import GoalSpace
from magellan.worlds.little_zoo.text import initial_prompt
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN, OBJECTS, display_name
from magellan.worlds.little_zoo.world import SCENE_SIZE, VERBS, goal_text


class ZooParts(PromptParts):
    """The parts of Little-Zoo's prompts."""

    def texts(self) -> list[str]:
        return prompt_parts()

    def of(self, goals: GoalSet, positions: np.ndarray) -> np.ndarray:
        return parts_of(*decode(goals.codes_at(positions), goals.split))

    def trial(self, split: str) -> GoalSet:
        return GoalSpace(neighbours(split), split)


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
