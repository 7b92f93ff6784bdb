"""Little-Zoo as Gymnasium environments: a single one and a vector."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Space, Text
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_shared_memory

from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import is_whole
from magellan.worlds.episodes import (
    NO_ACTION,
    NOT_BEGUN,
    ResetNeeded,
    check_one_for_each,
    check_options,
    check_sizes,
    has_ended,
    selected,
)
from magellan.worlds.little_zoo import dynamics, text
from magellan.worlds.little_zoo.codes import SPLITS, decode
from magellan.worlds.little_zoo.dynamics import NOTHING, SCENE_SIZE, START_ON_OBJECT, Scene, State
from magellan.worlds.little_zoo.goals import Goal
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN, object_id

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LONGEST_OBSERVATION = 150  # longest: 125, four names of 13 letters, one stood on
_LONGEST_ACTION = 40  # longest: 21, "Release cucumber seed"; room for a language model's text


class ActionText(Text):
    """Actions as text.

    A random string is no action, so `sample()` returns "Grasp", the only action valid in every
    state. For random play pass the possible ones: `sample(mask=info["possible_actions"])`.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length=_LONGEST_ACTION, charset=_LETTERS + " ", seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a uniformly drawn action of `mask`; "Grasp" without a mask."""
        if mask is None or not len(mask):
            return dynamics.GRASP_ACTION
        return str(mask[int(self.np_random.integers(len(mask)))])


class ObservationText(Text):
    """Observations of three lines."""

    def __init__(self) -> None:
        super().__init__(max_length=_LONGEST_OBSERVATION, charset=_LETTERS + " \n:,()/012")


@create_shared_memory.register(ObservationText)
def _refuse(*_: Any, **__: Any) -> None:
    why = ", as Gymnasium reads texts in it only once"
    raise not_allowed("AsyncVectorEnv: shared_memory", True, "False", why)


def draw_start(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw the objects that episodes start on: int64 (count,), 0..3 in 4.73 %, else -1."""
    position = rng.random(count) / START_ON_OBJECT * SCENE_SIZE
    return np.where(position < SCENE_SIZE, position.astype(np.int64), NOTHING)


def _check_start(standing_on: Any) -> int:
    if not is_whole(standing_on, NOTHING) or standing_on >= SCENE_SIZE:
        raise InputError(
            f"standing_on = {standing_on!r}: allowed are 0..3 (object), -1 (nothing), None"
        )
    return int(standing_on)


def _check_render_mode(mode: str | None) -> str | None:
    if mode not in (None, "ansi"):
        raise InputError(f"render_mode = {mode!r}: allowed are 'ansi', None")
    return mode


@dataclass
class _Episode:
    """An episode: goal, scene, state with its texts, steps so far, and its two flags."""

    verb: int
    target: int
    scene: Scene
    state: State
    elapsed: int = 0
    terminated: bool = False
    truncated: bool = False

    def __post_init__(self) -> None:
        self.goal = dynamics.goal_text(self.verb, self.target)
        self.enter(self.state)

    def enter(self, state: State) -> None:
        """Go to a state and render its texts."""
        self.state = state
        self.observation = text.observation(self.scene, state)
        self.possible_actions = text.possible_actions(self.scene, state)
        self.inventory = text.inventory(self.scene, state)

    def prompt(self) -> str:
        """Return the prompt: goal, observation, "Action: "."""
        return text.prompt(self.goal, self.observation)

    def resolve(self, action: str) -> tuple[str, int]:
        """Return verb and position of a typed action; `InputError` if it is invalid."""
        return text.resolve(self.scene, self.state, action)

    def act(self, verb: str, position: int) -> None:
        """Do a resolved action."""
        state, grew = dynamics.transition(self.scene, self.state, verb, position)
        self.enter(state)
        self.elapsed += 1
        self.terminated = dynamics.reached(self.scene, state, grew, self.verb, self.target)
        self.truncated = self.elapsed == dynamics.horizon(self.verb, self.target)

    @property
    def ended(self) -> bool:
        """Whether the goal was reached, or the last step done."""
        return self.terminated or self.truncated


class LittleZoo(gymnasium.Env[str, str]):
    """The text world of Gaven et al. 2025: grasp an object, or grow it by feeding it what it eats.

    `reset(seed=..., options={"goal": "Grow lion", "objects": ["lion", "water", "cow", "carrot"],
    "standing_on": None})`. Missing or None options are drawn: goal and objects (up to four) as in
    the raw training space, the object stood on at the start with its true probability.
    `standing_on` 0..3 or -1 (nothing) forces it.

    `step("Go to baby lion")` gives reward 1.0 and `terminated` when the goal is reached,
    `truncated` at exactly the last step of the horizon (both can be true); either ends the
    episode. `info` has `goal`, `possible_actions` and `inventory`.

    Raises:
        InputError: an unknown option, goal, object or action, more than four objects.
        ResetNeeded: a step before the first reset, or after the end of the episode.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = _check_render_mode(render_mode)
        self.observation_space = ObservationText()
        self.action_space = ActionText()
        self._episode: _Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; see the class for the options."""
        options = check_options(options, ("goal", "objects", "standing_on"))
        super().reset(seed=seed)
        goal = self._choose_goal(options.get("goal"))
        scene = self._choose_scene(options.get("objects"))
        start = options.get("standing_on")
        start = draw_start(self.np_random, 1)[0] if start is None else _check_start(start)
        self._episode = _Episode(*goal, scene, dynamics.initial_state(int(start)))
        return self._episode.observation, self._info(self._episode)

    def _choose_goal(self, goal: str | None) -> tuple[int, int]:
        if goal is not None:
            return dynamics.parse_goal(goal)
        verb, target = self.np_random.integers((len(dynamics.VERBS), NUM_TRAIN))
        return int(verb), int(target)

    def _choose_scene(self, objects: Sequence[str] | None) -> Scene:
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
        episode = self._begun()
        episode.act(*self._resolve(action))
        flags = episode.terminated, episode.truncated
        return episode.observation, float(episode.terminated), *flags, self._info(episode)

    def check(self, action: str) -> None:
        """Raise what `step` would raise for this action, without a step."""
        self._resolve(action)

    def _resolve(self, action: str) -> tuple[str, int]:
        episode = self._begun()
        if episode.ended:
            raise ResetNeeded("action: the episode has ended; allowed: a reset first")
        return episode.resolve(action)

    def render(self) -> str | None:
        """Return the prompt as text (render mode "ansi")."""
        return None if self.render_mode is None else self._begun().prompt()

    def _begun(self) -> _Episode:
        if self._episode is None:
            raise ResetNeeded(NOT_BEGUN)
        return self._episode

    def _info(self, episode: _Episode) -> dict[str, Any]:
        return {
            "goal": episode.goal,
            "possible_actions": list(episode.possible_actions),
            "inventory": list(episode.inventory),
        }


class LittleZooVector(VectorEnv):
    """A vector of Little-Zoo episodes, without automatic reset.

    `reset(seed=None, options={"goals": ..., "reset_mask": ..., "standing_on": ...})`: `reset_mask`
    bool (num_envs,) selects the environments to reset (default all); `goals` is a sequence of
    `Goal`, `standing_on` a sequence of int, both with one entry for each of these, in order.
    Without `goals` they are drawn from the raw training space; without `standing_on`, or where it
    is None, starts are drawn with the true probability.

    `step(actions)`: an int array (num_envs,) of positions in each environment's possible actions,
    or a sequence of strings. An environment whose episode has ended takes no step until it is
    reset. Action -1 skips one: no step is counted, its reward is 0 and both flags are false.

    Observations are a tuple of strings. `infos` has arrays (num_envs,), and masks, all true, as
    `_goal` and so on: `goal`, `possible_actions` (tuples) and `inventory` (tuples) of objects, and
    `standing_on`, int8: position in the scene, -1 for nothing. Rewards float64. Only starts and
    goals are random, drawn from the environment's own generator.

    episodes: the current ones, (num_envs,).

    Raises:
        InputError: an unknown option or object, a wrong length, an invalid action; the state is
            then unchanged.
        ResetNeeded: an action in an environment whose episode has ended; the state is unchanged.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["ansi"],
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    def __init__(self, num_envs: int = 1, render_mode: str | None = None) -> None:
        if not is_whole(num_envs, 1):
            raise InputError(f"num_envs = {num_envs!r}: allowed are whole numbers >= 1")
        self.render_mode = _check_render_mode(render_mode)
        self.num_envs = num_envs
        self.single_observation_space = ObservationText()
        self.single_action_space = ActionText()
        self.episodes: list[_Episode] = []

    # An evaluation makes vectors of hundreds and reads neither; a copy of a space takes half a
    # millisecond.
    @functools.cached_property
    def observation_space(self) -> Space[Any]:  # type: ignore[override]
        return batch_space(self.single_observation_space, self.num_envs)

    @functools.cached_property
    def action_space(self) -> Space[Any]:  # type: ignore[override]
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def possible_actions(self) -> list[tuple[str, ...]]:
        """Possible actions of each environment."""
        return [episode.possible_actions for episode in self.episodes]

    def prompts(self) -> list[str]:
        """Return the prompts: goal, observation, "Action: "; (num_envs,)."""
        return [episode.prompt() for episode in self.episodes]

    def render(self) -> tuple[str, ...] | None:
        """Return the prompts as text (render mode "ansi"): (num_envs,)."""
        self._check_begun()
        return None if self.render_mode is None else tuple(self.prompts())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start episodes; see the class for the options."""
        options = check_options(options, ("goals", "reset_mask", "standing_on"))
        which = selected(options.get("reset_mask"), self.num_envs, begun=bool(self.episodes))
        goals: list[tuple[int, int, Scene]] | None = None
        if options.get("goals") is not None:
            check_one_for_each(options["goals"], which, Goal)
            goals = [_read_goal(goal) for goal in options["goals"]]
        starts: Any = options.get("standing_on")
        starts = np.asarray([None] * len(which) if starts is None else starts)
        if starts.shape != (len(which),):
            raise InputError(f"standing_on: allowed is one value for each of {len(which)} resets")
        starts = [None if start is None else _check_start(start) for start in starts.tolist()]
        super().reset(seed=seed)  # nothing is drawn before all that is given was checked
        if goals is None:
            goals = self._draw_goals(len(which))
        drawn = iter(draw_start(self.np_random, starts.count(None)).tolist())
        new = [
            _Episode(*goal, dynamics.initial_state(next(drawn) if start is None else start))
            for goal, start in zip(goals, starts, strict=True)
        ]
        self.episodes = self.episodes or list(new)
        for i, episode in zip(which, new, strict=True):
            self.episodes[i] = episode
        return self._observations(), self._infos()

    def _draw_goals(self, count: int) -> list[tuple[int, int, Scene]]:
        """Draw verb, target and scene of each goal."""
        codes = self.np_random.integers(SPLITS["train"].size, size=count)
        verbs, targets, scenes = (array.tolist() for array in decode(codes))
        return list(zip(verbs, targets, map(tuple, scenes), strict=True))

    def step(
        self, actions: Any
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Do one action in each environment; see the class for the form of actions."""
        rewards = np.zeros(self.num_envs)
        terminations, truncations = np.zeros((2, self.num_envs), dtype=bool)
        for i, move in enumerate(self._moves(actions)):
            if move is not None:
                episode = self.episodes[i]
                episode.act(*move)
                rewards[i] = terminations[i] = episode.terminated
                truncations[i] = episode.truncated
        return self._observations(), rewards, terminations, truncations, self._infos()

    def _moves(self, actions: Any) -> list[tuple[str, int] | None]:
        """Resolve all actions, before the first is done; None: no action."""
        self._check_begun()
        if len(actions) != self.num_envs:
            raise InputError(f"actions: {len(actions)} given, allowed are {self.num_envs}")
        return [_move(i, self.episodes[i], action) for i, action in enumerate(actions)]

    def _check_begun(self) -> None:
        if not self.episodes:
            raise ResetNeeded(NOT_BEGUN)

    def _observations(self) -> tuple[str, ...]:
        return tuple([episode.observation for episode in self.episodes])

    def _infos(self) -> dict[str, Any]:
        columns = {
            "goal": (episode.goal for episode in self.episodes),
            "possible_actions": (episode.possible_actions for episode in self.episodes),
            "inventory": (episode.inventory for episode in self.episodes),
        }
        infos = {key: np.fromiter(of, object, self.num_envs) for key, of in columns.items()}
        standing_on = [episode.state.standing_on for episode in self.episodes]
        infos["standing_on"] = np.asarray(standing_on, dtype=np.int8)
        return infos | {f"_{key}": np.ones(self.num_envs, dtype=bool) for key in infos}

    def evaluation_env(self, num_envs: int) -> "LittleZooVector":
        """Return an independent vector."""
        return LittleZooVector(num_envs)

    def state_dict(self) -> dict[str, Any]:
        """Return all mutable state: a row per environment, and the random state."""
        self._check_begun()
        rows = [
            (e.verb, e.target, e.scene, *e.state, e.elapsed, e.terminated, e.truncated)
            for e in self.episodes
        ]
        columns = zip(_COLUMNS.items(), zip(*rows, strict=True), strict=True)
        arrays: dict[str, Any] = {
            key: np.asarray(values, dtype) for (key, dtype), values in columns
        }
        return {**arrays, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; `InputError` if the number of environments differs."""
        check_sizes(state, _COLUMNS, self.num_envs)
        columns = [np.asarray(state[key], dtype).tolist() for key, dtype in _COLUMNS.items()]
        self.episodes = [
            _Episode(verb, target, tuple(scene), State(tuple(place), tuple(grown), on), *progress)
            for verb, target, scene, place, grown, on, *progress in zip(*columns, strict=True)
        ]
        self.np_random.bit_generator.state = state["rng"]


_COLUMNS: dict[str, type] = {
    "verbs": np.int8,
    "targets": np.int8,
    "scenes": np.int8,
    "place": np.int8,
    "grown": bool,
    "standing_on": np.int8,
    "elapsed": np.int16,
    "terminations": bool,
    "truncations": bool,
}
"""Arrays of a `state_dict`, with their types."""


def _move(number: int, episode: _Episode, action: Any) -> tuple[str, int] | None:
    """Resolve an action of an environment, a position or a text; None: no action."""
    is_position = is_whole(action)
    if is_position and action == NO_ACTION:
        return None
    if episode.ended:
        raise has_ended(number)
    if not is_position:
        return episode.resolve(action)
    possible = episode.possible_actions
    if not 0 <= action < len(possible):
        raise InputError(
            f"action = {action}: allowed are 0..{len(possible) - 1}, or -1 for no action"
        )
    return episode.resolve(possible[action])


def _read_goal(goal: Goal) -> tuple[int, int, Scene]:
    if len(goal.objects) != SCENE_SIZE:
        raise InputError(f"objects = {goal.objects!r}: allowed are {SCENE_SIZE} object types")
    return *dynamics.parse_goal(goal.text), tuple(object_id(o, "objects") for o in goal.objects)
