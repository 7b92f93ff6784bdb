"""A vector environment for worlds that define a single episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from magellan.core.errors import InputError, shown
from magellan.worlds.base import Environment

NO_ACTION = -1
"""Action index that leaves an environment as it is."""


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
        if num_envs < 1:
            raise InputError(f"num_envs = {num_envs!r}: allowed are whole numbers >= 1")
        self.num_envs, self._kind = num_envs, kind
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
        options = options or {}
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        which = np.flatnonzero(options.get("reset_mask", np.ones(self.num_envs, bool))).tolist()
        goals = options.get("goals", ())
        if len(goals) != len(which):
            raise InputError(
                f"goals: {len(goals)} given, allowed is one for each of {len(which)} resets"
            )
        new = dict(zip(which, (self._kind(**goal) for goal in goals), strict=True))
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
        for i, (episode, action) in enumerate(zip(self.episodes, actions, strict=True)):
            if action == NO_ACTION:
                continue
            possible = episode.possible_actions()
            if not 0 <= action < len(possible):
                raise InputError(f"action = {action}: allowed are 0..{len(possible) - 1}, or -1")
            reached = episode.act(possible[action], self._rng)
            if reached not in (0, 1):
                raise InputError(
                    f"{type(episode).__name__}.act: {shown(reached)} is not allowed; allowed: True "
                    "or False, whether the goal is reached"
                )
            rewards[i] = reached
            self._elapsed[i] += 1
            self._terminated[i] = rewards[i] > 0
            self._truncated[i] = self._elapsed[i] == episode.horizon
        flags = self._terminated.copy(), self._truncated.copy()
        return tuple(self.prompts()), rewards, *flags, {}

    def _check_attributes(self) -> None:
        for episode in self.episodes:
            for name, value in vars(episode).items():
                if not _is_kept(value):
                    raise InputError(
                        f"{self._kind.__name__}.{name}: {shown(value)} is not allowed; allowed: "
                        "what a checkpoint keeps: numbers of Python, texts, None, arrays of "
                        "numbers, lists, and dicts by text"
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
