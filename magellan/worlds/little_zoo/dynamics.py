"""The rules of Little-Zoo: states, actions, and when a goal is reached.

Pure functions on small immutable values. An object is given by its position 0..3 in the scene.
There are no coordinates: an agent that has left the centre stands on objects only, so a state need
only record which objects are free, held or gone.
"""

from typing import Any, NamedTuple

from magellan.core.errors import InputError
from magellan.worlds.little_zoo.vocabulary import (
    CARNIVORE,
    HERBIVORE,
    KIND_OF,
    OBJECTS,
    PLANT,
    display_name,
    feeds,
    object_id,
)

SCENE_SIZE = 4
HANDS = 2
FREE, HELD, GONE = range(3)
NOTHING = -1

START_ON_OBJECT = 0.0473
"""Probability that an episode starts on an object (each of the four equally likely).

Four objects uniform in a square of side 2, at least 0.3 apart, and a grasp radius of 0.125 around
the centre: 2 million simulated scenes, standard error 0.0002.
"""

ACTIONS = ("Grasp", "Go to", "Release")
GRASP_ACTION, GO_TO, RELEASE = ACTIONS

VERBS = ("Grasp", "Grow")
GRASP, GROW = range(len(VERBS))
GRASP_HORIZON = 3
GROW_HORIZON = {PLANT: 6, HERBIVORE: 10, CARNIVORE: 15}
OTHER_GROW_HORIZON = 10

Scene = tuple[int, ...]
"""The object ids o1..o4."""


class State(NamedTuple):
    """Place of each of the four objects, which have grown, which is stood on (-1: none)."""

    place: tuple[int, ...]
    grown: tuple[bool, ...]
    standing_on: int

    def where(self, place: int) -> list[int]:
        """Positions of the objects that are FREE, HELD or GONE, in scene order."""
        return [position for position in range(SCENE_SIZE) if self.place[position] == place]


def initial_state(standing_on: int = NOTHING) -> State:
    """Return the state at the start of an episode: everything free, nothing grown."""
    return State((FREE,) * SCENE_SIZE, (False,) * SCENE_SIZE, standing_on)


def name(scene: Scene, state: State, position: int) -> str:
    """Return the display name of the object at `position`."""
    return display_name(scene[position], state.grown[position])


def find_free(scene: Scene, state: State, prefix: str) -> int:
    """Return the first free object whose name starts with `prefix`, -1 if none.

    The prefix test is the world's rule: "Go to carrot" leads to a "carrot seed" that comes before a
    grown "carrot", and of two equal objects only the first is accessible.
    """
    for position in state.where(FREE):
        if name(scene, state, position).startswith(prefix):
            return position
    return NOTHING


def find_held(scene: Scene, state: State, target: str) -> int:
    """Return the held object that "Release `target`" refers to, -1 if none.

    The first held one if its name is equal, else the second, whatever its name.
    """
    held = state.where(HELD)
    if held and name(scene, state, held[0]) == target:
        return held[0]
    return held[1] if len(held) == HANDS else NOTHING


def transition(scene: Scene, state: State, action: str, position: int) -> tuple[State, int]:
    """Return the next state, and the position of the object that grew (-1: none).

    action: one of `ACTIONS`; `position` is a free object for "Go to", a held one for "Release",
    ignored for "Grasp".
    """
    if action == GRASP_ACTION:
        return grasp(state), NOTHING
    if action == GO_TO:
        return state._replace(standing_on=position), NOTHING  # held objects stay held
    return release(scene, state, position)


def grasp(state: State) -> State:
    """Pick up the object stood on, if any and if a hand is free; otherwise nothing happens."""
    here = state.standing_on
    if here == NOTHING or len(state.where(HELD)) == HANDS:
        return state
    return State(_put(state.place, here, HELD), state.grown, NOTHING)


def release(scene: Scene, state: State, held: int) -> tuple[State, int]:
    """Offer the held object to the one stood on; return the next state and who grew (-1: none).

    Either the object stood on eats the held one, or the held one eats the object stood on and takes
    its place. If neither can eat, the object stays held.
    """
    here = state.standing_on
    if here == NOTHING:
        return state, NOTHING
    if not state.grown[here] and feeds(scene[held], state.grown[held], scene[here]):
        return _meal(state, eater=here, food=held), here
    if not state.grown[held] and feeds(scene[here], state.grown[here], scene[held]):
        return _meal(state, eater=held, food=here), held
    return state, NOTHING


def _meal(state: State, eater: int, food: int) -> State:
    """`eater` grows, free and stood on; `food` is gone, its `grown` reset."""
    place = _put(_put(state.place, eater, FREE), food, GONE)
    grown = _put(_put(state.grown, eater, True), food, False)
    return State(place, grown, eater)


def _put(values: tuple[Any, ...], position: int, value: int | bool) -> tuple[Any, ...]:
    return (*values[:position], value, *values[position + 1 :])


def parse_goal(text: str) -> tuple[int, int]:
    """Return (verb, object id) of a goal such as "Grow lion"; `InputError` if either is unknown."""
    verb, _, target = text.partition(" ") if isinstance(text, str) else ("", "", "")
    if verb not in VERBS:
        raise InputError(
            f"goal = {text!r}: allowed is Grasp or Grow and one object, as 'Grow lion'"
        )
    return VERBS.index(verb), object_id(target, key=f"goal = {text!r}, its object")


def goal_text(verb: int, target: int) -> str:
    """Return the text of a goal: "Grow lion"."""
    return f"{VERBS[verb]} {OBJECTS[target]}"


def horizon(verb: int, target: int) -> int:
    """Return the number of steps of an episode, feasible or not."""
    if verb == GRASP:
        return GRASP_HORIZON
    return GROW_HORIZON.get(KIND_OF[target], OTHER_GROW_HORIZON)


def reached(scene: Scene, state: State, grew: int, verb: int, target: int) -> bool:
    """Return whether a step to `state` in which object `grew` grew (-1: none) reaches the goal.

    Grasp is a state (an object of the type is held), Grow an event (one grew in this step).
    """
    if verb == GRASP:
        return any(scene[held] == target for held in state.where(HELD))
    return grew != NOTHING and scene[grew] == target
