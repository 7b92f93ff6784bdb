"""Texts that a tokenizer must distinguish, the longest texts, and the parts of prompts."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from magellan.worlds.base import GoalSet, PromptParts
from magellan.worlds.little_zoo.codes import SPLITS, decode
from magellan.worlds.little_zoo.dynamics import (
    FREE,
    GO_TO,
    GRASP_ACTION,
    GROW,
    HELD,
    NOTHING,
    RELEASE,
    SCENE_SIZE,
    VERBS,
    State,
    goal_text,
)
from magellan.worlds.little_zoo.goals import GoalSpace
from magellan.worlds.little_zoo.text import initial_prompt, observation, prompt
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN, OBJECTS, WATER, display_name


class ZooParts(PromptParts):
    """Goal lines by verb and target, names of first and of later objects, the rest."""

    def texts(self) -> list[str]:
        return self._texts

    @cached_property
    def _texts(self) -> list[str]:
        names = [display_name(o, grown=False) for o in range(len(OBJECTS))]
        scene = (0,) * SCENE_SIZE
        objects = ", ".join(names[o] for o in scene)
        heads = []
        for verb in range(len(VERBS)):
            for target in range(len(OBJECTS)):
                head, rest = initial_prompt(goal_text(verb, target), scene).split(f" {objects}")
                heads.append(head)
        return [*heads, *(f" {name}" for name in names), *(f", {name}" for name in names), rest]

    def of(self, goals: GoalSet, positions: np.ndarray) -> np.ndarray:
        verbs, targets, scenes = decode(goals.codes_at(positions), goals.split)
        heads = len(VERBS) * len(OBJECTS)
        later = np.where(np.arange(SCENE_SIZE) == 0, heads, heads + len(OBJECTS))
        rest = np.full(len(verbs), heads + 2 * len(OBJECTS))
        return np.column_stack([verbs * len(OBJECTS) + targets, scenes + later, rest])

    def trial(self, split: str) -> GoalSet:
        space = SPLITS[split]
        families = len(space.targets) * len(VERBS)
        offset, first = np.indices((max(families, NUM_TRAIN), NUM_TRAIN)).reshape(2, -1)
        code = offset % families
        for position in range(space.free):
            code = code * NUM_TRAIN + (first + (position % 2) * offset) % NUM_TRAIN
        return GoalSpace(code, split)


def longest() -> list[tuple[str, str]]:
    """Return, for each object, a prompt full of it and the action that releases it."""
    return [
        (
            initial_prompt(goal_text(GROW, o), (o,) * SCENE_SIZE, standing_on=0),
            f"{RELEASE} {display_name(o, grown=False)}",
        )
        for o in range(len(OBJECTS))
    ]


def groups() -> Iterator[Mapping[str, str]]:
    """Yield prompts that differ in one object, prompts that differ in the goal, actions."""
    names = {
        display_name(o, grown): (o, grown) for o in range(len(OBJECTS)) for grown in (False, True)
    }
    start = goal_text(0, WATER)
    for position in (0, 1):
        for place, standing in ((FREE, False), (FREE, True), (HELD, False)):
            yield {
                name: prompt(start, _observation(o, grown, position, place, standing))
                for name, (o, grown) in names.items()
            }
    shown = _observation(WATER, False, 0, FREE, False)
    goals = [goal_text(verb, o) for verb in range(len(VERBS)) for o in range(len(OBJECTS))]
    yield {goal: prompt(goal, shown) for goal in goals}
    actions = [f"{verb} {name}" for verb in (GO_TO, RELEASE) for name in names]
    yield {action: action for action in (GRASP_ACTION, *actions)}


def _observation(identity: int, grown: bool, position: int, place: int, standing: bool) -> str:
    """Return the observation of one object among water; those before it are in the same place."""
    scene, places = [WATER] * SCENE_SIZE, [FREE] * SCENE_SIZE
    scene[position] = identity
    places[: position + 1] = [place] * (position + 1)
    all_grown = tuple(grown and o == position for o in range(SCENE_SIZE))
    state = State(tuple(places), all_grown, position if standing else NOTHING)
    return observation(tuple(scene), state)
