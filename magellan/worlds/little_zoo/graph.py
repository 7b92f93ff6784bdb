"""State graphs that cache the rules, for the vector environment.

Transitions in a scene depend only on the kinds of its objects and which of them are equal: the 1.9
million scenes have 1,357 shapes. The graph of a shape is expanded lazily.
"""

from functools import cache

from magellan.worlds.little_zoo import text, world
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_TYPES, KIND_OF, TRAIN_TYPES, object_id
from magellan.worlds.little_zoo.world import NOTHING, SCENE_SIZE, Scene, State

Shape = tuple[int, ...]
"""Kinds of o1..o4, then for each the position of the first object equal to it."""


class Situation:
    """A state within scenes of one shape.

    state, layout: the state and its text layout.
    held: bit mask of the held objects.
    successors: for each possible action (next situation, bit mask of the object that grew); ()
    before the first visit.
    """

    __slots__ = ("held", "layout", "state", "successors")

    def __init__(self, state: State) -> None:
        self.state = state
        self.layout = text.layout(state)
        self.held = sum(1 << position for position in state.where(world.HELD))
        self.successors: tuple[tuple[Situation, int], ...] = ()


class SceneGraph:
    """The situations of all scenes of one shape."""

    def __init__(self, shape: Shape) -> None:
        self._scene = representative(shape)
        self._words = text.scene_words(self._scene)
        self._situations: dict[State, Situation] = {}
        self.initial = tuple(
            self.situation(world.initial_state(start)) for start in (*range(SCENE_SIZE), NOTHING)
        )
        """Initial situation, by the position stood on (-1, the last: nothing)."""

    def situation(self, state: State) -> Situation:
        """Return the situation of a state, the same object each time."""
        if state not in self._situations:
            self._situations[state] = Situation(state)
        return self._situations[state]

    def expand(self, situation: Situation) -> tuple[tuple[Situation, int], ...]:
        """Fill in and return the successors of a situation."""
        actions = situation.layout.possible_actions(self._words)
        situation.successors = tuple(self._successor(situation.state, action) for action in actions)
        return situation.successors

    def _successor(self, state: State, action: str) -> tuple[Situation, int]:
        verb, position = text.resolve(self._scene, state, action)
        state, grew = world.transition(self._scene, state, verb, position)
        return self.situation(state), 0 if grew == NOTHING else 1 << grew


def shape_of(scene: Scene) -> Shape:
    """Return the shape of a scene."""
    return tuple(KIND_OF[o] for o in scene) + tuple(scene.index(o) for o in scene)


def representative(shape: Shape) -> Scene:
    """Return a scene of this shape, with a different object of the kind per equality group."""
    scene: list[int] = []
    for position in range(SCENE_SIZE):
        kind, first = shape[position], shape[SCENE_SIZE + position]
        if first < position:
            scene.append(scene[first])
            continue
        names = TRAIN_TYPES[kind] + HELD_OUT_TYPES[kind]
        scene.append(next(o for o in map(object_id, names) if o not in scene))
    return tuple(scene)


@cache
def scene_graph(shape: Shape) -> SceneGraph:
    """Return the graph of a shape, the same object each time."""
    return SceneGraph(shape)
