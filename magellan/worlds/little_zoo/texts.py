"""Texts that a tokenizer must tell apart, and the longest ones."""

from collections.abc import Iterator, Mapping

from magellan.worlds.little_zoo.text import initial_prompt, layout, prompt, scene_words
from magellan.worlds.little_zoo.vocabulary import OBJECTS, WATER, display_name
from magellan.worlds.little_zoo.world import (
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


def longest() -> list[tuple[str, str]]:
    """Return, for each object, a prompt full of it and the action that releases it."""
    return [
        (
            initial_prompt(goal_text(GROW, each), (each,) * SCENE_SIZE, standing_on=0),
            f"{RELEASE} {display_name(each, grown=False)}",
        )
        for each in range(len(OBJECTS))
    ]


def groups() -> Iterator[Mapping[str, str]]:
    """Go through prompts that differ in one object, prompts that differ in the goal, actions."""
    names = {
        display_name(each, grown): (each, grown)
        for each in range(len(OBJECTS))
        for grown in (False, True)
    }
    start = goal_text(0, WATER)
    for at in (0, 1):
        for place, standing in ((FREE, False), (FREE, True), (HELD, False)):
            yield {
                name: prompt(start, _observation(each, grown, at, place, standing))
                for name, (each, grown) in names.items()
            }
    seen = _observation(WATER, False, 0, FREE, False)
    goals = [goal_text(verb, each) for verb in range(len(VERBS)) for each in range(len(OBJECTS))]
    yield {goal: prompt(goal, seen) for goal in goals}
    actions = [f"{verb} {name}" for verb in (GO_TO, RELEASE) for name in names]
    yield {action: action for action in (GRASP_ACTION, *actions)}


def _observation(identity: int, grown: bool, at: int, place: int, standing: bool) -> str:
    """Return what is seen where one object is special; all others are water, and held if it is."""
    scene, places = [WATER] * SCENE_SIZE, [FREE] * SCENE_SIZE
    scene[at] = identity
    places[: at + 1] = [place] * (at + 1)
    grew = tuple(grown and position == at for position in range(SCENE_SIZE))
    state = State(tuple(places), grew, at if standing else NOTHING)
    return layout(state).observation(scene_words(tuple(scene)))
