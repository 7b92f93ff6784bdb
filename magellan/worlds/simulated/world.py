"""The world `simulated` and its environment, in which a learner gets better by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from magellan.worlds.base import Categories, Category, Environment
from magellan.worlds.episodes import NO_ACTION, Episode, Episodes
from magellan.worlds.listed import ListedWorld
from magellan.worlds.registry import register_world
from magellan.worlds.simulated.grammar import KINDS, texts
from magellan.worlds.simulated.learner import chance, practised

ACTION = "Try"


class Trial(Episode):
    """One try; the environment says with which chance it succeeds."""

    horizon = 1

    def __init__(self, text: str, kind: int, split: str) -> None:
        self.text, self.kind, self.split, self.chance = text, kind, split, 0.0

    def prompt(self) -> str:
        return f"Goal: {self.text}\nAction: "

    def possible_actions(self) -> tuple[str]:
        return (ACTION,)

    def act(self, action: str, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self.chance)


class Trials(Episodes[Trial]):
    """Tries of a learner; those of training teach it, in the order of steps.

    skills: of the learner, float64 (kinds,).
    """

    def __init__(self, num_envs: int, skills: np.ndarray | None = None) -> None:
        super().__init__(num_envs, Trial)
        self._learns = skills is None
        self.skills = np.zeros(len(KINDS)) if skills is None else skills.copy()

    def step(
        self, actions: np.ndarray
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        for trial in self.episodes:
            trial.chance = float(chance(self.skills, np.array([trial.kind]), trial.split)[0])
        after = super().step(actions)
        if self._learns:
            tried = [
                trial.kind
                for trial, action in zip(self.episodes, actions, strict=True)
                if action != NO_ACTION
            ]
            episodes = np.bincount(np.array(tried, dtype=np.int64), minlength=len(KINDS))
            self.skills = practised(self.skills, episodes)
        return after

    def aside(self, num_envs: int) -> Environment:
        """Tries of the learner as it is now, which teach it nothing."""
        return Trials(num_envs, self.skills)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "skills": self.skills.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.skills = np.array(state["skills"])


@register_world
class SimulatedWorld(ListedWorld):
    """Goal spaces are mixes of the five kinds, such as 60-60-20-132-132."""

    name = "simulated"
    label = "Simulated learner"
    categories = Categories(Category(kind) for kind in KINDS)
    episode = Trial

    def totals(self, split: str) -> tuple[int, ...]:
        return tuple(len(group) for group in texts(split))

    def arguments(self, category: int, rank: int, split: str) -> dict[str, Any]:
        return {"text": texts(split)[category][rank], "kind": category, "split": split}

    def texts(self) -> Iterator[Mapping[str, str]]:
        return self.openings()

    def environment(self, num_envs: int) -> Environment:
        return Trials(num_envs)
