"""Goals in words that somebody else plays: what a curriculum makes of a list of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    """Prompts with their groups, which stand for the categories.

    listed: the prompts; one may stand there twice.
    numbers: int64 (n,), the group of each.
    categories: the groups.
    """

    name, label = "texts", "Texts"

    def __init__(self, listed: Sequence[str], numbers: np.ndarray, categories: Categories) -> None:
        self.listed, self.numbers, self.categories = listed, numbers, categories

    def parse(self, name: str) -> tuple[int, ...]:
        return tuple(np.bincount(self.numbers, minlength=len(self.categories)).tolist())

    def goals(self, name: str = "all", seed: int = 0, split: str = SPLITS[0]) -> GoalSet:
        """All of them, in the order of the list."""
        return TextGoals(self, np.arange(len(self.listed)))

    def unseen(self, per_category: int, seed: int) -> GoalSet:
        return TextGoals(self, np.arange(0), SPLITS[1])

    def environment(self, num_envs: int) -> Environment:
        raise InputError("texts: they have no environment; a training loop of your own plays them")

    def texts(self) -> Iterator[Mapping[str, str]]:
        yield {text: text for text in self.listed}


class TextGoals(ListedGoals):
    """Some of them; a goal's code is its place in the list."""

    world: Texts

    def __init__(self, world: Texts, places: np.ndarray, split: str = SPLITS[0]) -> None:
        super().__init__(world, places, np.zeros(0), split)
        self.categories = world.numbers[places]  # int64: groups may be many

    def goal(self, position: int) -> str:
        return self.world.listed[self.indices[position]]

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        return self.goal(position)
