"""The rules applied once per situation: a graph of states that the vector environment walks along.

What happens in a scene depends on the kinds of its objects and on which of them are equal, not on
their names: the 1.9 million scenes have 1,357 shapes. The graph of a shape is filled in where
somebody goes.
"""

from functools import cache

from magellan.worlds.little_zoo import text, world
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_TYPES, KIND_OF, TRAIN_TYPES, object_id
from magellan.worlds.little_zoo.world import NOTHING, SCENE_SIZE, Scene, State

Shape = tuple[int, ...]
"""Kinds of o1..o4, then for each the position of the first object equal to it."""


class Situation:
    """A state within scenes of one shape.

    state, layout: the state and how it reads.
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
        """Situation at the start, by the position stood on (-1, the last: nothing)."""

    def situation(self, state: State) -> Situation:
        """Return the situation of a state, the same object each time."""
        if state not in self._situations:
            self._situations[state] = Situation(state)
        return self._situations[state]

    def expand(self, situation: Situation) -> tuple[tuple[Situation, int], ...]:
        """Fill in and return the successors of a situation."""
        actions = situation.layout.possible_actions(self._words)
        situation.successors = tuple(self._after(situation.state, action) for action in actions)
        return situation.successors

    def _after(self, state: State, action: str) -> tuple[Situation, int]:
        verb, position = text.resolve(self._scene, state, action)
        state, grew = world.transition(self._scene, state, verb, position)
        return self.situation(state), 0 if grew == NOTHING else 1 << grew


def shape_of(scene: Scene) -> Shape:
    """Return the shape of a scene."""
    return tuple(KIND_OF[o] for o in scene) + tuple(scene.index(o) for o in scene)


def representative(shape: Shape) -> Scene:
    """Return a scene of this shape: for each group of equal objects another of the kind."""
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
