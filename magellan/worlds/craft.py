"""Craft: make an item by its recipe, whose ingredients have recipes of their own.

The world writes its recipes itself, from a fixed seed. An item of depth d is made of one item of
depth d - 1 and one raw item, in either order; raw items, of depth 0, lie around. Names are
invented, so nobody knows a recipe from elsewhere. The idea is TextCraft's (Prasad et al. 2024,
arXiv 2311.05772); items, recipes and rules are other ones, without numbers of items.

- "Get x" puts a raw item that lies around into the inventory, unless it is there; there is always
  another one around.
- "Craft x" takes the ingredients of x from the inventory and puts x there. It is possible where all
  of them are there and x is not. So an ingredient that two recipes need is got twice.
- The goal is reached when its item is in the inventory, within `horizon(depth)` steps.

A goal is an item and what is shown of the world: the recipes that it needs and some that it does
not, and the raw items of all of them. In an impossible goal one needed raw item or recipe is
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from magellan.worlds.base import SPLITS, Categories, Category, GoalSet, register_world
from magellan.worlds.episodes import Episode
from magellan.worlds.listed import ListedWorld

SEED = 0
"""Of recipes and contexts: what the world is; the seeds of a run draw goals from it."""
RAW = 40
"""Number of raw items."""
MADE = {"train": 30, "unseen": 10}
"""Number of items of each depth from 1 on. Unseen ones are in no goal of training."""
CONTEXTS = 10_000
"""Number of goals about one item, possible and impossible ones each."""
DISTRACTORS = (1, 2)
"""Least and largest number of recipes shown that a goal does not need."""
IMPOSSIBLE = 0
_CONSONANTS, _VOWELS = "bdlmnrstv", "aeiou"


def horizon(depth: int) -> int:
    """Steps of an episode; the shortest way takes 2 * depth + 1."""
    return 3 * depth + 2


class Crafting(Episode):
    """One episode.

    goal: the item to make.
    around: raw items that can be got.
    recipes: those shown, each what is made and, behind it, its ingredients.
    inventory: items held, each one once, in the order in which they came.
    """

    def __init__(
        self, goal: str, around: Sequence[str], recipes: Sequence[Sequence[str]], horizon: int
    ) -> None:
        self.goal, self.around, self.horizon = goal, list(around), horizon
        self.recipes = [list(recipe) for recipe in recipes]
        self.inventory: list[str] = []

    def prompt(self) -> str:
        recipes = ", ".join(f"{made} = {' '.join(parts)}" for made, *parts in self.recipes)
        return (
            f"Goal: Make {self.goal}\nRecipes: {recipes}\nAround: {' '.join(self.around)}\n"
            f"{self.holdings()}\nAction: "
        )

    def holdings(self) -> str:
        """Return the one line of the prompt that actions change."""
        return f"Inventory: {' '.join(self.inventory) or 'empty'}"

    def commands(self) -> list[str]:
        """Return all actions of this goal, also those that would do nothing now."""
        crafted = (f"Craft {recipe[0]}" for recipe in self.recipes)
        return [*(f"Get {item}" for item in self.around), *crafted]

    def possible_actions(self) -> list[str]:
        return [each for each in self.commands() if each[0] == "G" or self.changed(each)]

    def changed(self, action: str) -> list[str]:
        """Return the inventory after a command; empty if it would do nothing."""
        verb, item = action.split()
        made_of = {made: parts for made, *parts in self.recipes}
        needed = made_of[item] if verb == "Craft" else []
        if item in self.inventory or not set(needed) <= set(self.inventory):
            return []
        return [*(held for held in self.inventory if held not in needed), item]

    def act(self, action: str, rng: np.random.Generator) -> bool:
        self.inventory = self.changed(action) or self.inventory
        return self.goal in self.inventory


@dataclass(frozen=True)
class Book:
    """Items by number, raw ones first, then those of training by depth, then the unseen ones.

    depths: of the deepest items.
    names: (items,).
    recipes: ingredients of each item, numbers; none for raw ones, (items,).
    needs: what is used up on the way to each item, each once, and the item itself, (items,).
    """

    depths: int
    names: tuple[str, ...]
    recipes: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[int, ...], ...]

    @staticmethod
    def written(depths: int) -> Book:
        """Return the book with items up to this depth. A deeper book has other recipes."""
        rng = np.random.default_rng([SEED, depths])
        recipes: list[tuple[int, ...]] = [()] * RAW
        needs: list[tuple[int, ...]] = [(item,) for item in range(RAW)]
        for split, depth in product(SPLITS, range(1, depths + 1)):
            below = _numbers(depths, SPLITS[0], depth - 1)
            for item in _numbers(depths, split, depth):
                recipes.append(_recipe(below, rng))
                parts = (each for part in recipes[item] for each in needs[part])
                needs.append(tuple(dict.fromkeys((item, *parts))))
        names = rng.choice(_all_names(), size=len(recipes), replace=False)
        return Book(depths, tuple(names.tolist()), tuple(recipes), tuple(needs))

    @property
    def trained(self) -> int:
        """Number of items that are in goals of training; they come first."""
        return self.made(SPLITS[0]).stop

    def made(self, split: str, depth: int | None = None) -> range:
        """Return the items that goals of a split are about, of one depth or of all."""
        if depth is not None:
            return _numbers(self.depths, split, depth)
        first, last = (_numbers(self.depths, split, level) for level in (1, self.depths))
        return range(first.start, last.stop)

    def depth(self, item: int) -> int:
        """Return the number of recipes, one below the other, on the way to an item."""
        return sum(each >= RAW for each in self.needs[item])


def _numbers(depths: int, split: str, depth: int) -> range:
    """Items of one depth."""
    if depth == 0:
        return range(RAW)
    first = RAW + (depth - 1) * MADE[split] + (split != SPLITS[0]) * depths * MADE[SPLITS[0]]
    return range(first, first + MADE[split])


def _recipe(below: range, rng: np.random.Generator) -> tuple[int, ...]:
    """One item of those below, and another raw one."""
    first, raw = int(rng.choice(below)), int(rng.integers(RAW - 1))
    raw += below.start == 0 and raw >= first
    return (first, raw) if rng.integers(2) else (raw, first)


def _all_names() -> list[str]:
    syllables = ["".join(pair) for pair in product(_CONSONANTS, _VOWELS)]
    return [a + b for a, b in product(syllables, syllables) if a != b]


@dataclass(frozen=True)
class Context:
    """What is shown of the world for a goal, in numbers of items.

    around: raw items.
    recipes: items whose recipes are shown.
    missing: the needed raw item or recipe that is not; -1 where the goal can be reached.
    """

    around: list[int]
    recipes: list[int]
    missing: int


def context(book: Book, item: int, number: int, possible: bool) -> Context:
    """Return the context of this number of an item's goals."""
    rng = np.random.default_rng([SEED, item, number, possible])
    needed = book.needs[item]
    missing = -1 if possible else needed[rng.integers(len(needed))]
    recipes = [each for each in needed if each >= RAW]
    wanted = len(recipes) + rng.integers(DISTRACTORS[0], DISTRACTORS[1] + 1)
    while len(recipes) < wanted:
        other = int(rng.integers(RAW, book.trained))
        recipes += [other] if other not in needed and other not in recipes else []
    around = list({part: 0 for each in recipes for part in book.recipes[each] if part < RAW})
    for group in (around, recipes):
        rng.shuffle(group)
        group[:] = [each for each in group if each != missing]
    return Context(around, recipes, missing)


class CraftWorld(ListedWorld):
    """A subclass with other `depths` and another name is another world.

    depths: of the deepest goals.
    """

    label = "Craft"
    episode = Crafting
    depths: int

    def __init__(self) -> None:
        shares = [0.8 / 5**depth for depth in range(self.depths + 1)]
        self.proportions = tuple(shares)
        deep = [Category(f"depth_{depth}", label=f"Depth {depth}") for depth in self._levels]
        self.categories = Categories([Category("impossible", feasible=False), *deep])

    @property
    def _levels(self) -> range:
        return range(1, self.depths + 1)

    @cached_property
    def book(self) -> Book:
        """Return its items and recipes."""
        return Book.written(self.depths)

    def totals(self, split: str) -> tuple[int, ...]:
        counts = [CONTEXTS * len(self.book.made(split, depth)) for depth in self._levels]
        return sum(counts), *counts

    def arguments(self, category: int, rank: int, split: str) -> dict[str, Any]:
        item, number = self._chosen(category, rank, split)
        return self.scene(item, context(self.book, item, number, category != IMPOSSIBLE))

    def _chosen(self, category: int, rank: int, split: str) -> tuple[int, int]:
        """Return item and number of the context of a goal."""
        place, number = divmod(rank, CONTEXTS)
        return self.book.made(split, category or None)[place], number

    def scene(self, item: int, shown: Context) -> dict[str, Any]:
        """Return the arguments of an episode."""
        names, recipes = self.book.names, self.book.recipes
        return {
            "goal": names[item],
            "around": [names[each] for each in shown.around],
            "recipes": [[names[part] for part in (i, *recipes[i])] for i in shown.recipes],
            "horizon": horizon(self.book.depth(item)),
        }

    def texts(self) -> Iterator[Mapping[str, str]]:
        """Every item at every place of a prompt, and every action."""
        names = self.book.names
        for at in range(4):
            scenes = ([name if place == at else names[0] for place in range(4)] for name in names)
            yield {
                name: Crafting(goal, [around], [[made, part]], 1).prompt()
                for name, (goal, around, part, made) in zip(names, scenes, strict=True)
            }
        yield {name: self._holding([name]).prompt() for name in names}
        yield {f"{verb} {name}": f"{verb} {name}" for verb in ("Get", "Craft") for name in names}

    def longest(self) -> list[tuple[str, str]]:
        """A deepest goal with all that can be shown and held."""
        held = list(self.book.names[: 2 * (self.depths + DISTRACTORS[1]) + 1])
        return [(self._holding(held).prompt(), f"Craft {held[0]}")]

    def _holding(self, items: list[str]) -> Crafting:
        recipes = [[items[0], items[-1], items[0]]] * (self.depths + DISTRACTORS[1])
        episode = Crafting(items[0], items, recipes, 1)
        episode.inventory = items
        return episode

    def kinds(self, goals: GoalSet, positions: np.ndarray) -> list[str]:
        """Categories, and of impossible goals which need of the item is missing."""
        codes, categories = goals.codes_at(positions), goals.categories_at(positions)
        words = super().kinds(goals, positions)
        for place in np.flatnonzero(categories == IMPOSSIBLE).tolist():
            item, number = self._chosen(IMPOSSIBLE, int(codes[place]), goals.split)
            missing = context(self.book, item, number, False).missing
            words[place] = "no raw item" if missing < RAW else "no recipe"
        return words


@register_world
class Craft(CraftWorld):
    """Items of depth 1 to 4."""

    name = "craft"
    depths = 4
