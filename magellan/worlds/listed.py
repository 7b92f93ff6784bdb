"""Worlds with a known number of goals: goal spaces are mixes, such as 8-4, of counts per category.

With proportions, sizes such as 25k name mixes too.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from magellan.core.errors import InputError
from magellan.worlds.base import (
    NOTHING,
    SPLITS,
    Environment,
    GoalSet,
    ListedGoals,
    World,
    draw_ranks,
)
from magellan.worlds.episodes import Episode, Episodes

Arguments = Mapping[str, Any]
"""Keyword arguments of an episode: the form of a goal."""
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}
_NAME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([kM]?)")


def size_named(name: str) -> float | None:
    """Parse a size such as "25k", "1M", "2.5k" or "2500"; None for other names."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return float(Decimal(match[1]) * _THOUSANDS[match[2]]) if match else None


def in_proportion(size: float, proportions: Sequence[float]) -> tuple[int, ...]:
    """Rounded counts of a goal space of this size: (categories,)."""
    return tuple(int(size * share + 0.5) for share in proportions)


def shortest_name(mix: Sequence[int], proportions: Sequence[float]) -> str:
    """Canonical name of a mix: 25k for 20000-4000-800-160-32; counts with dashes if no size fits.

    Neighbouring sizes may round to the same mix; the smallest names it.

    mix: counts, (categories,).
    proportions: the first is the largest, (categories,).
    """
    guess = int(mix[0] / proportions[0])
    sizes = (n for n in range(guess - 2, guess + 3) if in_proportion(n, proportions) == tuple(mix))
    size = next(sizes, None)
    if size is None or min(mix) == 0:
        return "-".join(map(str, mix))
    for letter in ("M", "k"):
        if size % _THOUSANDS[letter] == 0:
            return f"{size // _THOUSANDS[letter]}{letter}"
    return str(size)


class ListedWorld(World):
    """A subclass defines the number of goals, each goal, and the episode.

    episode: class of its episodes.
    proportions: share of each category in goal spaces named by size, the first the largest; empty:
        no names by size.
    """

    episode: type[Episode]
    proportions: tuple[float, ...] = ()

    @abstractmethod
    def totals(self, split: str) -> tuple[int, ...]:
        """Return the total number of goals per category."""

    @abstractmethod
    def arguments(self, category: int, rank: int, split: str) -> Arguments:
        """Return the goal of this rank, 0..total-1, within its category."""

    def parse(self, name: str) -> tuple[int, ...]:
        categories, totals = self.categories.names, self.totals(SPLITS[0])
        numbers = "-".join(["[0-9]{1,9}"] * len(categories))
        mix = tuple(map(int, name.split("-"))) if re.fullmatch(numbers, str(name)) else ()
        size = size_named(name) if self.proportions else None
        if size is not None and size.is_integer():
            mix = in_proportion(size, self.proportions)
            mix = mix if min(mix) else ()
        if not any(mix) or any(n > total for n, total in zip(mix, totals, strict=True)):
            smallest = math.ceil(0.5 / min(self.proportions)) if self.proportions else 0
            size = max(25, -(-smallest // 1000))
            sizes = f"sizes such as {size}k, at least {smallest}, or " * bool(smallest)
            raise InputError(
                f"goal_space = {name!r}: allowed are {sizes}numbers of goals with dashes between "
                f"them, for {', '.join(categories)}, at most {'-'.join(map(str, totals))}"
            )
        return mix

    def canonical(self, name: str) -> str:
        mix = self.parse(name)
        return shortest_name(mix, self.proportions) if self.proportions else "-".join(map(str, mix))

    def goals(self, name: str, seed: int, split: str = SPLITS[0]) -> GoalSet:
        return self._draw(self.parse(name), seed, split)

    def unseen(self, per_category: int, seed: int) -> GoalSet:
        return self._draw([per_category] * len(self.categories), seed, SPLITS[1])

    def openings(self) -> Iterator[Mapping[str, str]]:
        """Yield all first prompts of episodes, then their possible actions.

        Sufficient as `texts` if the first prompt states the goal, and later prompts add no words.
        Goals with the same first prompt count as one text.
        """
        prompts: dict[str, str] = {}
        actions: dict[str, str] = {}
        for split in SPLITS:
            for category, total in enumerate(self.totals(split)):
                for rank in range(total):
                    episode = self.episode(**self.arguments(category, rank, split))
                    prompt = episode.prompt()
                    prompts[prompt] = prompt
                    actions.update((action, action) for action in episode.possible_actions())
        yield prompts
        yield actions

    def longest(self) -> Sequence[tuple[str, str]]:
        """The first prompt of a goal of each category, with each action, or none."""
        goals = [(n, SPLITS[0]) for n, total in enumerate(self.totals(SPLITS[0])) if total]
        episodes = [self.episode(**self.arguments(n, 0, split)) for n, split in goals]
        return [
            (one.prompt(), action) for one in episodes for action in one.possible_actions() or [""]
        ]

    def _draw(self, mix: Sequence[int], seed: int, split: str) -> GoalSet:
        """Draw goals; of a category with fewer than in the mix, all."""
        totals = self.totals(split)
        counts = np.minimum(mix, totals).tolist()
        ranks = np.concatenate(draw_ranks(counts, totals, seed, split))
        categories = np.repeat(np.arange(len(counts)), counts)
        return _Goals(self, self._firsts(split)[categories] + ranks, categories, split)

    def _firsts(self, split: str) -> np.ndarray:
        """Return the code of each category's first goal: int64 (categories + 1,)."""
        return np.cumsum([0, *self.totals(split)])

    def environment(self, num_envs: int) -> Environment:
        return Episodes(num_envs, self.episode)


class _Goals(ListedGoals):
    """Goals of a `ListedWorld`: a code is the rank among the goals of all categories."""

    world: ListedWorld

    def goal(self, position: int) -> Arguments:
        category = int(self.categories[position])
        rank = int(self.indices[position] - self.world._firsts(self.split)[category])
        return self.world.arguments(category, rank, self.split)

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        return self.world.episode(**self.goal(position)).prompt()
