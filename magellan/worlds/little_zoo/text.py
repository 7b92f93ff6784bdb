"""Texts of the world: observation, possible actions, prompt; parsing of typed actions."""

from magellan.core.errors import InputError
from magellan.worlds.little_zoo.dynamics import (
    FREE,
    GO_TO,
    GRASP_ACTION,
    HANDS,
    HELD,
    NOTHING,
    RELEASE,
    Scene,
    State,
    find_free,
    find_held,
    initial_state,
    name,
)


def observation(scene: Scene, state: State) -> str:
    """Return three lines: objects that are free, stood on, held."""
    here, held = state.standing_on, inventory(scene, state)
    return (
        f"You see: {', '.join(_names(scene, state, FREE))}\n"
        f"You are standing on: {'nothing' if here == NOTHING else name(scene, state, here)}\n"
        f"Inventory ({len(held)}/{HANDS}): {', '.join(held) or 'empty'}"
    )


def possible_actions(scene: Scene, state: State) -> tuple[str, ...]:
    """Return "Grasp", then "Go to" each free object, then "Release" each held one."""
    go_to = [f"{GO_TO} {free}" for free in _names(scene, state, FREE)]
    release = [f"{RELEASE} {held}" for held in inventory(scene, state)]
    return (GRASP_ACTION, *go_to, *release)


def inventory(scene: Scene, state: State) -> tuple[str, ...]:
    """Return the names of the held objects."""
    return _names(scene, state, HELD)


def _names(scene: Scene, state: State, place: int) -> tuple[str, ...]:
    return tuple([name(scene, state, position) for position in state.where(place)])


def prompt(goal: str, observation: str) -> str:
    """Return the prompt for the language model."""
    return f"Goal: {goal}\n{observation}\nAction: "


def initial_prompt(goal: str, scene: Scene, standing_on: int = NOTHING) -> str:
    """Return the prompt at the start of an episode."""
    return prompt(goal, observation(scene, initial_state(standing_on)))


def resolve(scene: Scene, state: State, action: str) -> tuple[str, int]:
    """Parse a typed action: return its verb and the object's position (-1 for Grasp).

    The verb may be in any case; a name may be shortened after "Go to". "Release" with a name that
    is not held refers to the second held object, if there are two. "Release all" with both hands
    full has no effect, like Grasp then, and is parsed as Grasp.

    Raises:
        InputError: unknown verb, or no free or held object matches.
    """
    verb, target = _split(action)
    release_all = verb == RELEASE and target == "all" and len(state.where(HELD)) == HANDS
    if verb == GRASP_ACTION or release_all:
        return GRASP_ACTION, NOTHING
    position = (find_free if verb == GO_TO else find_held)(scene, state, target)
    if position == NOTHING:
        allowed = ", ".join(possible_actions(scene, state))
        raise InputError(f"action = {action!r}: no such object here; allowed are {allowed}")
    return verb, position


def _split(action: str) -> tuple[str, str]:
    lowered = action.lower() if isinstance(action, str) else ""
    if lowered == GRASP_ACTION.lower():
        return GRASP_ACTION, ""
    for verb in (GO_TO, RELEASE):
        if lowered == verb.lower() or lowered.startswith(f"{verb.lower()} "):
            return verb, action[len(verb) + 1 :]
    raise InputError(f"action = {action!r}: allowed are Grasp, Go to <object>, Release <object>")
