"""Texts of the world: observation, possible actions, prompt; parsing of typed actions."""

from collections.abc import Callable
from functools import cache
from operator import itemgetter

from magellan.core.errors import InputError
from magellan.worlds.little_zoo.vocabulary import OBJECTS, display_name
from magellan.worlds.little_zoo.world import (
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
)

_GRASP_WORD = 0
_NAME, _GO_TO, _RELEASE = range(3)
_FORMS = 3

Words = tuple[str, ...]


def _object_words(identity: int) -> Words:
    """Name, go-to action and release action of an object, first young then grown: 6 strings."""
    names = [display_name(identity, grown) for grown in (False, True)]
    return tuple(form for name in names for form in (name, f"{GO_TO} {name}", f"{RELEASE} {name}"))


_WORDS_OF = tuple(_object_words(identity) for identity in range(len(OBJECTS)))


def scene_words(scene: Scene) -> Words:
    """Return all words of the episodes in this scene: "Grasp", then 6 for each object."""
    first, second, third, fourth = scene
    return (
        (GRASP_ACTION,)
        + _WORDS_OF[first]
        + _WORDS_OF[second]
        + _WORDS_OF[third]
        + _WORDS_OF[fourth]
    )


def _word(state: State, position: int, form: int) -> int:
    """Index in `scene_words` of one form of an object as it is now."""
    return 1 + (2 * position + state.grown[position]) * _FORMS + form


def _picker(indices: list[int]) -> Callable[[Words], Words]:
    """Return a function that picks these items of a tuple, as a tuple."""
    if not indices:
        return lambda words: ()
    if len(indices) == 1:
        index = indices[0]
        return lambda words: (words[index],)
    return itemgetter(*indices)


class Layout:
    """The text layout of a state for any scene: which words of the scene go where.

    `observation`, `possible_actions` and `inventory` take the `scene_words` of the scene. A state
    has one layout for all scenes, so the vector environment only picks ready strings.
    """

    __slots__ = ("_names", "_template", "inventory", "possible_actions")

    def __init__(self, state: State) -> None:
        free, held, here = state.where(FREE), state.where(HELD), state.standing_on
        standing = [] if here == NOTHING else [here]
        self._template = (
            f"You see: {', '.join(['%s'] * len(free))}\n"
            f"You are standing on: {'%s' if standing else 'nothing'}\n"
            f"Inventory ({len(held)}/{HANDS}): {', '.join(['%s'] * len(held)) or 'empty'}"
        )
        self._names = _picker([_word(state, o, _NAME) for o in free + standing + held])
        self.inventory = _picker([_word(state, o, _NAME) for o in held])
        self.possible_actions = _picker(
            [_GRASP_WORD]
            + [_word(state, o, _GO_TO) for o in free]
            + [_word(state, o, _RELEASE) for o in held]
        )

    def observation(self, words: Words) -> str:
        """Return three lines: objects that are free, stood on, held."""
        return self._template % self._names(words)


@cache
def layout(state: State) -> Layout:
    """Return the layout of a state, cached (there are a few hundred)."""
    return Layout(state)


def prompt(goal: str, observation: str) -> str:
    """Return the prompt for the language model."""
    return f"Goal: {goal}\n{observation}\nAction: "


def initial_prompt(goal: str, scene: Scene, standing_on: int = NOTHING) -> str:
    """Return the prompt at the start of an episode."""
    return prompt(goal, layout(initial_state(standing_on)).observation(scene_words(scene)))


def resolve(scene: Scene, state: State, action: str) -> tuple[str, int]:
    """Parse a typed action: return its verb and the object's position (-1 for Grasp).

    The verb may be in any case; a name may be shortened after "Go to". "Release" with a name that
    is not held refers to the second held object, if there are two. "Release all" with both hands
    full has no effect, like Grasp then, and is parsed as Grasp.

    Raises:
        InputError: unknown verb, or no free or held object matches.
    """
    verb, name = _split(action)
    release_all = verb == RELEASE and name == "all" and len(state.where(HELD)) == HANDS
    if verb == GRASP_ACTION or release_all:
        return GRASP_ACTION, NOTHING
    position = (find_free if verb == GO_TO else find_held)(scene, state, name)
    if position == NOTHING:
        allowed = ", ".join(layout(state).possible_actions(scene_words(scene)))
        raise InputError(f"action = {action!r}: no such object here; allowed are {allowed}")
    return verb, position


def resolve_index(scene: Scene, state: State, action: str) -> int:
    """Return the index of a typed action in the possible actions; see `resolve`."""
    verb, position = resolve(scene, state, action)
    if verb == GRASP_ACTION:
        return 0
    free = state.where(FREE)
    if verb == GO_TO:
        return 1 + free.index(position)
    return 1 + len(free) + state.where(HELD).index(position)


def _split(action: str) -> tuple[str, str]:
    lowered = action.lower() if isinstance(action, str) else ""
    if lowered == GRASP_ACTION.lower():
        return GRASP_ACTION, ""
    for verb in (GO_TO, RELEASE):
        if lowered == verb.lower() or lowered.startswith(f"{verb.lower()} "):
            return verb, action[len(verb) + 1 :]
    raise InputError(f"action = {action!r}: allowed are Grasp, Go to <object>, Release <object>")
