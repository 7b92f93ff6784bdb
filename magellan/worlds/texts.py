"""A list of prompts as a world without environment, for training loops outside this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest

import numpy as np

from magellan.core.errors import InputError
from magellan.worlds.base import (
    NOTHING,
    SPLITS,
    Categories,
    Environment,
    GoalSet,
    ListedGoals,
    World,
)


class Texts(World):
    """Prompts in groups, which are the categories.

    listed: the prompts; duplicates are allowed.
    numbers: int64 (n,), group of each.
    categories: the groups.
    """

    name, label = "texts", "Texts"

    def __init__(self, listed: Sequence[str], numbers: np.ndarray, categories: Categories) -> None:
        self.listed, self.numbers, self.categories = listed, numbers, categories

    def parse(self, name: str) -> tuple[int, ...]:
        return tuple(np.bincount(self.numbers, minlength=len(self.categories)).tolist())

    def goals(self, name: str = "all", seed: int = 0, split: str = SPLITS[0]) -> GoalSet:
        """All prompts, in the order of the list."""
        return TextGoals(self, np.arange(len(self.listed)))

    def unseen(self, per_category: int, seed: int) -> GoalSet:
        return TextGoals(self, np.arange(0), SPLITS[1])

    def environment(self, num_envs: int) -> Environment:
        raise InputError(
            "texts: this world has no environment; play its goals in your own training loop"
        )

    def longest(self) -> Sequence[tuple[str, str]]:
        return [(text, "") for text in nlargest(16, self.listed, key=len)]

    def texts(self) -> Iterator[Mapping[str, str]]:
        yield {text: text for text in self.listed}


class TextGoals(ListedGoals):
    """A subset of the prompts; a goal's code is its index in the list."""

    world: Texts

    def __init__(self, world: Texts, indices: np.ndarray, split: str = SPLITS[0]) -> None:
        super().__init__(world, indices, np.zeros(0), split)
        self.categories = world.numbers[indices]  # int64: there may be many groups

    def goal(self, position: int) -> str:
        return self.world.listed[self.indices[position]]

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        return self.goal(position)
