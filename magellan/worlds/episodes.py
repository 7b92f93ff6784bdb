"""A vector environment for worlds that define a single episode."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np

from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import is_whole
from magellan.worlds.base import Environment

NO_ACTION = -1
"""Action index that leaves an environment as it is."""
NOT_BEGUN = "no episode has begun; allowed: a reset first"
GOALS = "goals as `GoalSet.goal` gives them"


class ResetNeeded(InputError, gymnasium.error.ResetNeeded):
    """An episode is used before it has begun, or stepped after it has ended."""


class Episode(ABC):
    """One episode. Its attributes are saved in checkpoints, as JSON or arrays.

    So they are numbers of Python, texts, None, arrays of numbers, and lists or dicts (by text) of
    these: a tuple would come back as a list, a set not at all.

    horizon: steps after which it ends.
    """

    horizon: int

    @abstractmethod
    def prompt(self) -> str:
        """Return the prompt for the language model."""

    @abstractmethod
    def possible_actions(self) -> Sequence[str]:
        """Return the possible actions, at least one."""

    @abstractmethod
    def act(self, action: str, rng: np.random.Generator) -> bool:
        """Do one of the possible actions; return whether it reaches the goal."""


EpisodeT = TypeVar("EpisodeT", bound=Episode)


class Episodes(Environment, Generic[EpisodeT]):
    """A vector of episodes of one class; a goal is the keyword arguments of an episode.

    episodes: the current ones, (num_envs,).
    """

    def __init__(self, num_envs: int, kind: type[EpisodeT]) -> None:
        if not is_whole(num_envs, 1):
            raise InputError(f"num_envs = {num_envs!r}: allowed are whole numbers >= 1")
        self.num_envs, self._kind = num_envs, kind
        self._bind = inspect.signature(kind).bind
        self._rng = np.random.default_rng()
        self.episodes: list[EpisodeT] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._terminated = np.zeros(num_envs, dtype=bool)
        self._truncated = np.zeros(num_envs, dtype=bool)

    @property
    def possible_actions(self) -> list[tuple[str, ...]]:
        return [tuple(episode.possible_actions()) for episode in self.episodes]

    def prompts(self) -> list[str]:
        return [episode.prompt() for episode in self.episodes]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start episodes; `goals` must be among the options."""
        options = check_options(options, ("goals", "reset_mask"))
        which = selected(options.get("reset_mask"), self.num_envs, begun=bool(self.episodes))
        goals = options.get("goals") or ()
        check_one_for_each(goals, which, Mapping)
        for goal in goals:
            try:
                self._bind(**goal)
            except TypeError as error:
                raise not_allowed("goals", goal, GOALS, f" ({error})") from None
        if seed is not None:
            if not is_whole(seed, 0):
                raise not_allowed("seed", seed, "None, or a whole number >= 0")
            self._rng = np.random.default_rng(seed)
        new = dict(zip(which, (self._kind(**goal) for goal in goals), strict=True))
        for episode in new.values():
            horizon = getattr(episode, "horizon", None)
            if not is_whole(horizon, 1):
                raise not_allowed(f"{self._kind.__name__}.horizon", horizon, "a whole number >= 1")
        self.episodes = [new[i] if i in new else self.episodes[i] for i in range(self.num_envs)]
        if len(new) == self.num_envs:  # as at the first reset
            self._check_attributes()
        self._elapsed[which] = 0
        self._terminated[which] = self._truncated[which] = False
        return tuple(self.prompts()), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=bool)
        for i, action in self._chosen(actions).items():
            episode = self.episodes[i]
            reached = episode.act(action, self._rng)
            if reached not in (0, 1):
                method = f"{type(episode).__name__}.act"
                raise not_allowed(method, reached, "True or False, whether the goal is reached")
            rewards[i] = terminated[i] = reached
            self._elapsed[i] += 1
            truncated[i] = self._elapsed[i] >= episode.horizon
        self._terminated |= terminated
        self._truncated |= truncated
        return tuple(self.prompts()), rewards, terminated, truncated, {}

    def _chosen(self, actions: np.ndarray) -> dict[int, str]:
        """Return the actions of the environments that are stepped; check all of them."""
        if not self.episodes:
            raise ResetNeeded(NOT_BEGUN)
        actions = as_array(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise InputError(f"actions: allowed is an int array of shape ({self.num_envs},)")
        chosen = {}
        for i in np.flatnonzero(actions != NO_ACTION).tolist():
            if self._terminated[i] or self._truncated[i]:
                raise has_ended(i)
            possible = self.episodes[i].possible_actions()
            if not len(possible):
                method = f"{self._kind.__name__}.possible_actions"
                raise not_allowed(method, possible, "at least one action")
            if not 0 <= actions[i] < len(possible):
                raise InputError(
                    f"action = {actions[i]}: allowed are 0..{len(possible) - 1}, or -1"
                )
            chosen[i] = possible[actions[i]]
        return chosen

    def _check_attributes(self) -> None:
        for episode in self.episodes:
            for name, value in vars(episode).items():
                if not _is_kept(value):
                    raise not_allowed(
                        f"{self._kind.__name__}.{name}",
                        value,
                        "what a checkpoint keeps: numbers of Python, texts, None, arrays of "
                        "numbers, lists, and dicts by text",
                    )

    def evaluation_env(self, num_envs: int) -> Environment:
        return Episodes(num_envs, self._kind)

    def state_dict(self) -> dict[str, Any]:
        self._check_attributes()
        return {
            "episodes": [dict(vars(episode)) for episode in self.episodes],
            "elapsed": self._elapsed.copy(),
            "terminated": self._terminated.copy(),
            "truncated": self._truncated.copy(),
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; InputError if the number of environments differs."""
        check_sizes(state, ("episodes", "elapsed", "terminated", "truncated"), self.num_envs)
        self.episodes = [self._restore(values) for values in state["episodes"]]
        self._elapsed = np.array(state["elapsed"])
        self._terminated = np.array(state["terminated"])
        self._truncated = np.array(state["truncated"])
        self._rng.bit_generator.state = state["rng"]

    def _restore(self, values: Mapping[str, Any]) -> EpisodeT:
        episode = self._kind.__new__(self._kind)
        vars(episode).update(values)
        return episode


def _is_kept(value: Any) -> bool:
    """Whether a checkpoint gives an attribute back as it is."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_kept(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_kept, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf" and value.dtype.isnative
    return value is None or type(value) in (str, bool, int, float)


def check_sizes(state: Mapping[str, Any], keys: Iterable[str], num_envs: int) -> None:
    """Raise InputError if a sequence of a `state_dict` is not of `num_envs` environments."""
    for key in keys:
        if len(state[key]) != num_envs:
            raise InputError(
                f"state_dict: {key} of {len(state[key])} environments, allowed are {num_envs}"
            )


def check_one_for_each(goals: Any, which: Sequence[int], kind: type) -> None:
    """Raise InputError unless there is a goal, of this type, for each reset environment."""
    if not isinstance(goals, Sequence | np.ndarray):
        raise not_allowed("goals", goals, "a list of them")
    if len(goals) != len(which):
        raise InputError(
            f"goals: {len(goals)} given, allowed is one for each of {len(which)} resets"
        )
    for goal in goals:
        if not isinstance(goal, kind):
            raise not_allowed("goals", goal, GOALS)


def check_options(options: dict[str, Any] | None, allowed: Sequence[str]) -> dict[str, Any]:
    """Return the options of a reset; InputError if one is unknown."""
    if not isinstance(options, Mapping | None):
        raise not_allowed("options", options, f"None, or a dict of {', '.join(allowed)}")
    for key in options or {}:
        if key not in allowed:
            raise InputError(f"options: {key!r} is unknown; allowed are {', '.join(allowed)}")
    return options or {}


def as_array(values: Any) -> np.ndarray:
    """Return an array of values; an empty one of objects where rows differ in length."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.empty(0, dtype=object)


def selected(reset_mask: Any, num_envs: int, begun: bool) -> list[int]:
    """Return the environments that a reset selects.

    reset_mask: bool (num_envs,); None: all.
    begun: whether there was a reset before.
    """
    mask = np.ones(num_envs, dtype=bool) if reset_mask is None else as_array(reset_mask)
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise InputError(f"reset_mask: allowed is a bool array of shape ({num_envs},)")
    if not begun and not mask.all():
        raise ResetNeeded("reset_mask: allowed in the first reset is every environment")
    return np.flatnonzero(mask).tolist()


def has_ended(number: int) -> ResetNeeded:
    """Return the error for an action in an environment of a vector whose episode has ended."""
    return ResetNeeded(
        f"actions: the episode of environment {number} has ended; allowed: -1, or a reset of it "
        "first"
    )
