"""A simulated learner: goals of BabyAI-Text's five kinds, outcomes from a known competence.

An episode is one step with one action, and succeeds with a probability equal to the learner's
competence for its goal. Competence in a kind of goals grows with practice, at a rate proportional
to the skill in the kind before, so kinds are learned one after the other. For tests of estimators
and samplers against the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from magellan.worlds.base import Categories, Category, Environment, register_world
from magellan.worlds.episodes import NO_ACTION, Episode, Episodes
from magellan.worlds.listed import ListedWorld

KINDS = ("go_to", "pick_up", "open_door", "put_next_to", "pick_up_then_go_to")
COLORS = {"train": ("red", "green", "blue", "purple"), "unseen": ("yellow", "grey")}
TYPES = ("ball", "box", "key")
PLACES = ("", " on your left", " on your right", " in front of you", " behind you")


@cache
def texts(split: str) -> tuple[tuple[str, ...], ...]:
    """Return all goals of a split by kind.

    Unseen goals mention only objects with held-out colours.
    """
    colors = COLORS[split]
    objects = [f"the {color} {kind}" for color in colors for kind in TYPES]
    doors = [f"the {color} door" for color in colors]
    placed = [f"{name}{place}" for name in objects for place in PLACES]
    pairs = [(a, b) for a in objects for b in objects if a != b]
    return (
        tuple(f"go to {name}" for name in placed),
        tuple(f"pick up {name}" for name in placed),
        tuple(f"open {door}{place}" for door in doors for place in PLACES),
        tuple(f"put {a} next to {b}" for a, b in pairs),
        tuple(f"pick up {a} then go to {b}" for a, b in pairs),
    )


RATE = 0.01
"""Fraction of the gap to full skill closed per episode, once the kind before is mastered."""
TRANSFER = 0.8
"""Competence on unseen goals relative to training goals."""


def practised(
    skills: np.ndarray, episodes: np.ndarray, able: np.ndarray | None = None
) -> np.ndarray:
    """Skills after more training, float64 (kinds,): 1 - (1 - skill) (1 - RATE before) ** episodes.

    skills: float64 (kinds,).
    episodes: int64 (kinds,), number per kind.
    able: how much each kind helps the next one, float64 (kinds,); None: its skill.
    """
    before = np.concatenate([[1.0], (skills if able is None else able)[:-1]])
    return 1.0 - (1.0 - skills) * (1.0 - RATE * before) ** episodes


def chance(skills: np.ndarray, kinds: np.ndarray, split: str) -> np.ndarray:
    """Competence, the probability of success, on goals of these kinds (n,): float64 (n,)."""
    return skills[kinds] * (1.0 if split == "train" else TRANSFER)


class Trial(Episode):
    """One attempt; the environment sets its probability of success, `chance`."""

    horizon = 1

    def __init__(self, text: str, kind: int, split: str) -> None:
        self.text, self.kind, self.split, self.chance = text, kind, split, 0.0

    def prompt(self) -> str:
        return f"Goal: {self.text}\nAction: "

    def possible_actions(self) -> tuple[str]:
        return ("Try",)

    def act(self, action: str, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self.chance)


class Trials(Episodes[Trial]):
    """Attempts of a learner, which improves after every training step.

    skills: float64 (kinds,); given: fixed, for evaluation.
    """

    def __init__(self, num_envs: int, skills: np.ndarray | None = None) -> None:
        super().__init__(num_envs, Trial)
        self._learns = skills is None
        self.skills = np.zeros(len(KINDS)) if skills is None else skills.copy()

    def step(
        self, actions: np.ndarray
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        result = super().step(actions)
        if self._learns:
            kinds = np.array([trial.kind for trial in self.episodes])
            tried = kinds[np.asarray(actions) != NO_ACTION]
            self.skills = practised(self.skills, np.bincount(tried, minlength=len(KINDS)))
        return result

    def _chosen(self, actions: np.ndarray) -> dict[int, str]:
        chosen = super()._chosen(actions)
        for trial in self.episodes:
            trial.chance = float(chance(self.skills, np.array([trial.kind]), trial.split)[0])
        return chosen

    def evaluation_env(self, num_envs: int) -> Environment:
        """Attempts of the learner with its current skills, from which it does not learn."""
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
