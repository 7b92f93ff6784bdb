"""Little-Zoo as Gymnasium environments: a single one and a vector."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Text
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from magellan.core.errors import InputError
from magellan.worlds.little_zoo import text, world
from magellan.worlds.little_zoo.goals import SPLITS, Goal, decode
from magellan.worlds.little_zoo.graph import Situation, scene_graph, shape_of
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN, OBJECTS, object_id
from magellan.worlds.little_zoo.world import GRASP, NOTHING, SCENE_SIZE, START_ON_OBJECT, State

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LONGEST_OBSERVATION = 150  # longest: 125, four names of 13 letters, one stood on
_LONGEST_ACTION = 40  # longest: 21, "Release cucumber seed"; room for a language model's text

NO_ACTION = -1
"""Action index that skips an environment of the vector."""


class ActionText(Text):
    """Actions as text.

    A random string is no action, so `sample()` returns "Grasp", the only action valid in every
    state. For random play pass the possible ones: `sample(mask=info["possible_actions"])`.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length=_LONGEST_ACTION, charset=_LETTERS + " ", seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a uniformly drawn action of `mask`; "Grasp" without a mask."""
        if not mask:
            return world.GRASP_ACTION
        return str(mask[int(self.np_random.integers(len(mask)))])


def observation_space() -> Text:
    """Return the space of the three-line observations."""
    return Text(max_length=_LONGEST_OBSERVATION, charset=_LETTERS + " \n:,()/012")


def draw_start(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw the objects that episodes start on: int64 (count,), 0..3 in 4.73 %, else -1."""
    position = rng.random(count) / START_ON_OBJECT * SCENE_SIZE
    return np.where(position < SCENE_SIZE, position.astype(np.int64), NOTHING)


def _check_start(standing_on: Any) -> int:
    if not isinstance(standing_on, int | np.integer) or not NOTHING <= standing_on < SCENE_SIZE:
        raise InputError(
            f"standing_on = {standing_on!r}: allowed are 0..3 (object), -1 (nothing), None"
        )
    return int(standing_on)


def _check_options(options: dict[str, Any] | None, allowed: Sequence[str]) -> dict[str, Any]:
    for key in options or {}:
        if key not in allowed:
            raise InputError(f"options: {key!r} is unknown; allowed are {', '.join(allowed)}")
    return options or {}


class LittleZoo(gymnasium.Env[str, str]):
    """The text world of Gaven et al. 2025: grasp an object, or grow it by feeding it what it eats.

    `reset(seed=..., options={"goal": "Grow lion", "objects": ["lion", "water", "cow", "carrot"],
    "standing_on": None})`. Missing or None options are drawn: goal and objects (up to four) as in
    the raw training space, the object stood on at the start with its true probability.
    `standing_on` 0..3 or -1 (nothing) forces it.

    `step("Go to baby lion")` gives reward 1.0 and `terminated` when the goal is reached,
    `truncated` at exactly the last step of the horizon (both can be true). `info` has `goal`,
    `possible_actions` and `inventory`.

    Raises:
        InputError: an unknown option, goal, object or action, more than four objects.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = observation_space()
        self.action_space = ActionText()
        self._state: State | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; see the class for the options."""
        options = _check_options(options, ("goal", "objects", "standing_on"))
        super().reset(seed=seed)
        goal = self._choose_goal(options.get("goal"))
        scene = self._choose_scene(options.get("objects"))
        start = options.get("standing_on")
        start = draw_start(self.np_random, 1)[0] if start is None else _check_start(start)
        (self._verb, self._target), self._scene = goal, scene
        self._state = world.initial_state(int(start))
        self._words = text.scene_words(self._scene)
        self._elapsed = 0
        return self._observation(), self._info()

    def _choose_goal(self, goal: str | None) -> tuple[int, int]:
        if goal is not None:
            return world.parse_goal(goal)
        verb, target = self.np_random.integers((len(world.VERBS), NUM_TRAIN))
        return int(verb), int(target)

    def _choose_scene(self, objects: Sequence[str] | None) -> world.Scene:
        objects = () if objects is None else objects
        listed = isinstance(objects, Sequence) and not isinstance(objects, str)
        if not listed or len(objects) > SCENE_SIZE:
            raise InputError(
                f"objects = {objects!r}: allowed are at most {SCENE_SIZE} object types"
            )
        given = [object_id(name, key="objects") for name in objects]
        drawn = self.np_random.integers(NUM_TRAIN, size=SCENE_SIZE - len(given))
        return tuple(given + drawn.tolist())

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do one action; `InputError` if it is invalid in this state."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        verb, position = text.resolve(self._scene, self._state, action)
        self._state, grew = world.transition(self._scene, self._state, verb, position)
        self._elapsed += 1
        terminated = world.reached(self._scene, self._state, grew, self._verb, self._target)
        truncated = self._elapsed == world.horizon(self._verb, self._target)
        return self._observation(), float(terminated), terminated, truncated, self._info()

    def check(self, action: str) -> None:
        """Raise what `step` would raise for this action, without a step."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        text.resolve(self._scene, self._state, action)

    def render(self) -> str | None:
        """Return the prompt as text (render mode "ansi")."""
        if self.render_mode is None:
            return None
        return text.prompt(world.goal_text(self._verb, self._target), self._observation())

    def _observation(self) -> str:
        return text.layout(self._state).observation(self._words)

    def _info(self) -> dict[str, Any]:
        layout = text.layout(self._state)
        return {
            "goal": world.goal_text(self._verb, self._target),
            "possible_actions": list(layout.possible_actions(self._words)),
            "inventory": list(layout.inventory(self._words)),
        }


class _Episode:
    """An episode of the vector environment: goal, scene, situation and its texts."""

    __slots__ = (
        "goal",
        "graph",
        "grasp_goal",
        "horizon",
        "inventory",
        "observation",
        "possible_actions",
        "scene",
        "situation",
        "target",
        "target_mask",
        "verb",
        "words",
    )

    def __init__(self, verb: int, target: int, scene: world.Scene) -> None:
        self.verb, self.target, self.scene = verb, target, scene
        self.goal = _GOAL_TEXTS[verb][target]
        self.horizon = _HORIZONS[verb][target]
        self.grasp_goal = verb == GRASP
        self.target_mask = sum(1 << o for o in range(SCENE_SIZE) if scene[o] == target)
        self.graph = scene_graph(shape_of(scene))
        self.words = text.scene_words(scene)

    def enter(self, situation: Situation) -> None:
        """Go to a situation and render its texts."""
        layout, words = situation.layout, self.words
        self.situation = situation
        self.observation = layout.observation(words)
        self.possible_actions = layout.possible_actions(words)
        self.inventory = layout.inventory(words)

    def look_ahead(self, action: int) -> tuple[Situation, int]:
        """Return the situation after this action, and the object that would grow (bit mask)."""
        successors = self.situation.successors or self.graph.expand(self.situation)
        if not 0 <= action < len(successors):
            raise InputError(
                f"action = {action}: allowed are 0..{len(successors) - 1}, or -1 for no action"
            )
        return successors[action]

    def move(self, situation: Situation, grew: int) -> bool:
        """Go to the next situation; return whether this step reaches the goal."""
        if situation is not self.situation:
            self.enter(situation)
        return (situation.held if self.grasp_goal else grew) & self.target_mask != 0


class LittleZooVector(VectorEnv):
    """A vector of Little-Zoo episodes, without automatic reset.

    `reset(seed=None, options={"goals": ..., "reset_mask": ..., "standing_on": ...})`: `reset_mask`
    bool (num_envs,) selects the environments to reset (default all); `goals` is a sequence of
    `Goal`, `standing_on` an int array, both with one entry for each of these, in order. Without
    `goals` they are drawn from the raw training space, without `standing_on` with the true
    probability.

    `step(actions)`: an int array (num_envs,) of positions in each environment's possible actions,
    or a sequence of strings. Action -1 skips an environment: no step is counted, its reward is
    0 and its two flags keep their values.

    Observations are a tuple of strings. `infos` has `goal`, `possible_actions` (tuples) and
    `inventory` (tuples), each a list (num_envs,), and `standing_on`, int8 (num_envs,): position in
    the scene, -1 for nothing. Rewards float64. Only starts and goals are random, drawn from
    the environment's own generator.

    Raises:
        InputError: an unknown option or object, a wrong length, an invalid action; the state is
            then unchanged.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    def __init__(self, num_envs: int = 1) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs = {num_envs!r}: allowed are whole numbers >= 1")
        self.num_envs = num_envs
        self.single_observation_space = observation_space()
        self.single_action_space = ActionText()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes: list[_Episode] = []
        self._horizons = np.zeros(num_envs, dtype=np.int16)
        self._elapsed = np.zeros(num_envs, dtype=np.int16)
        self._terminations = np.zeros(num_envs, dtype=bool)
        self._truncations = np.zeros(num_envs, dtype=bool)

    @property
    def possible_actions(self) -> list[tuple[str, ...]]:
        """Possible actions of each environment."""
        return [episode.possible_actions for episode in self._episodes]

    def prompts(self) -> list[str]:
        """Return the prompts: goal, observation, "Action: "; (num_envs,)."""
        return [text.prompt(episode.goal, episode.observation) for episode in self._episodes]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start episodes; see the class for the options."""
        options = _check_options(options, ("goals", "reset_mask", "standing_on"))
        super().reset(seed=seed)
        which = self._selected(options.get("reset_mask"))
        new = self._new_episodes(options.get("goals"), len(which))
        starts = self._starts(options.get("standing_on"), len(which))
        for episode, start in zip(new, starts, strict=True):
            episode.enter(episode.graph.initial[start])
        self._episodes = self._episodes or list(new)
        for i, episode in zip(which, new, strict=True):
            self._episodes[i] = episode
            self._horizons[i] = episode.horizon
        self._elapsed[which] = 0
        self._terminations[which] = self._truncations[which] = False
        return self._observations(), self._infos()

    def _selected(self, reset_mask: Any) -> list[int]:
        mask = np.ones(self.num_envs, dtype=bool) if reset_mask is None else np.asarray(reset_mask)
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise InputError(f"reset_mask: allowed is a bool array of shape ({self.num_envs},)")
        if not self._episodes and not mask.all():
            raise gymnasium.error.ResetNeeded("the first reset must include every environment")
        return np.flatnonzero(mask).tolist()

    def _new_episodes(self, goals: Sequence[Goal] | None, count: int) -> list[_Episode]:
        if goals is None:
            codes = self.np_random.integers(SPLITS["train"].size, size=count)
            verbs, targets, scenes = (array.tolist() for array in decode(codes))
            return [
                _Episode(*goal) for goal in zip(verbs, targets, map(tuple, scenes), strict=True)
            ]
        if len(goals) != count:
            raise InputError(
                f"goals: {len(goals)} given, allowed is one for each of {count} resets"
            )
        return [_Episode(*_read_goal(goal)) for goal in goals]

    def _starts(self, standing_on: Any, count: int) -> list[int]:
        if standing_on is None:
            return draw_start(self.np_random, count).tolist()
        starts = np.asarray(standing_on)
        if starts.shape != (count,):
            raise InputError(f"standing_on: allowed is one value for each of {count} resets")
        return [_check_start(start) for start in starts.tolist()]

    def step(
        self, actions: Any
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Do one action in each environment; see the class for the form of actions."""
        indices = self._indices(actions)
        moves = [
            None if action == NO_ACTION else episode.look_ahead(action)
            for episode, action in zip(self._episodes, indices, strict=True)
        ]
        reached = [
            move is not None and episode.move(*move)
            for episode, move in zip(self._episodes, moves, strict=True)
        ]
        moved = np.asarray(indices) != NO_ACTION
        self._elapsed += moved
        self._terminations = np.where(moved, reached, self._terminations)
        self._truncations = np.where(moved, self._elapsed == self._horizons, self._truncations)
        rewards = np.asarray(reached, dtype=np.float64)
        flags = self._terminations.copy(), self._truncations.copy()
        return self._observations(), rewards, *flags, self._infos()

    def _indices(self, actions: Any) -> list[int]:
        """Convert actions to indices of the possible actions (-1: no action)."""
        if not self._episodes:
            raise gymnasium.error.ResetNeeded("call reset before step")
        if len(actions) != self.num_envs:
            raise InputError(f"actions: {len(actions)} given, allowed are {self.num_envs}")
        if isinstance(actions, np.ndarray) and actions.dtype.kind in "iu":
            return actions.tolist()
        return [self._index(i, action) for i, action in enumerate(actions)]

    def _index(self, i: int, action: str | int) -> int:
        if isinstance(action, int | np.integer):
            return int(action)
        episode = self._episodes[i]
        return text.resolve_index(episode.scene, episode.situation.state, action)

    def _observations(self) -> tuple[str, ...]:
        return tuple([episode.observation for episode in self._episodes])

    def _infos(self) -> dict[str, Any]:
        episodes = self._episodes
        standing_on = [episode.situation.state.standing_on for episode in episodes]
        return {
            "goal": [episode.goal for episode in episodes],
            "possible_actions": self.possible_actions,
            "inventory": [episode.inventory for episode in episodes],
            "standing_on": np.asarray(standing_on, dtype=np.int8),
        }

    def evaluation_env(self, num_envs: int) -> "LittleZooVector":
        """Return an independent vector."""
        return LittleZooVector(num_envs)

    def state_dict(self) -> dict[str, Any]:
        """Return all mutable state: a row per environment, and the random state."""
        if not self._episodes:
            raise gymnasium.error.ResetNeeded("call reset before state_dict")
        states = [episode.situation.state for episode in self._episodes]
        return {
            "scenes": np.asarray([episode.scene for episode in self._episodes], dtype=np.int8),
            "verbs": np.asarray([episode.verb for episode in self._episodes], dtype=np.int8),
            "targets": np.asarray([episode.target for episode in self._episodes], dtype=np.int8),
            "place": np.asarray([state.place for state in states], dtype=np.int8),
            "grown": np.asarray([state.grown for state in states], dtype=bool),
            "standing_on": np.asarray([state.standing_on for state in states], dtype=np.int8),
            "elapsed": self._elapsed.copy(),
            "terminations": self._terminations.copy(),
            "truncations": self._truncations.copy(),
            "rng": self.np_random.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; `InputError` if the number of environments differs."""
        for key in (*_EPISODE_KEYS, "elapsed", "terminations", "truncations"):
            if len(state[key]) != self.num_envs:
                raise InputError(
                    f"state_dict: {key} of {len(state[key])} environments, allowed are "
                    f"{self.num_envs}"
                )
        rows = {key: np.asarray(state[key]).tolist() for key in _EPISODE_KEYS}
        self._episodes = [
            _restore(*row) for row in zip(*(rows[key] for key in _EPISODE_KEYS), strict=True)
        ]
        self._horizons = np.array([e.horizon for e in self._episodes], dtype=np.int16)
        self._elapsed = np.array(state["elapsed"], dtype=np.int16)
        self._terminations = np.array(state["terminations"], dtype=bool)
        self._truncations = np.array(state["truncations"], dtype=bool)
        self.np_random.bit_generator.state = state["rng"]


_EPISODE_KEYS = ("verbs", "targets", "scenes", "place", "grown", "standing_on")


def _restore(
    verb: int, target: int, scene: list[int], place: list[int], grown: list[bool], standing_on: int
) -> _Episode:
    episode = _Episode(verb, target, tuple(scene))
    episode.enter(episode.graph.situation(State(tuple(place), tuple(grown), standing_on)))
    return episode


_GOAL_TEXTS = [
    [world.goal_text(verb, target) for target in range(len(OBJECTS))]
    for verb in range(len(world.VERBS))
]
_HORIZONS = [
    [world.horizon(verb, target) for target in range(len(OBJECTS))]
    for verb in range(len(world.VERBS))
]


def _read_goal(goal: Goal) -> tuple[int, int, world.Scene]:
    if len(goal.objects) != SCENE_SIZE:
        raise InputError(f"objects = {goal.objects!r}: allowed are {SCENE_SIZE} object types")
    return *world.parse_goal(goal.text), tuple(object_id(o, "objects") for o in goal.objects)
