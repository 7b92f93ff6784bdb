"""Craft: make an item by its recipe, whose ingredients have recipes of their own.

Recipes are generated from a fixed seed. An item of depth d is made of one item of depth d - 1 and
one raw item, in either order; raw items, of depth 0, lie around. Names are invented, so no recipe
is known from pretraining. The idea is TextCraft's (Prasad et al. 2024, arXiv 2311.05772), with
different items, recipes and rules, and without quantities.

- "Get x" puts a raw item that lies around into the inventory, unless it is there; the supply is
  unlimited.
- "Craft x" replaces the ingredients of x in the inventory by x. It is possible if all of them are
  in the inventory and x is not. So an ingredient that two recipes need is got twice.
- The goal is reached when its item is in the inventory, within `horizon(depth)` steps.

A goal is an item and a context: the recipes that it needs, some that it does not, and the raw items
of all of them. In an impossible goal one needed raw item or recipe is missing.
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
"""Of recipes and contexts, which define the world; a run's seed draws goals from it."""
RAW = 40
"""Number of raw items."""
ITEMS_PER_DEPTH = {"train": 30, "unseen": 10}
"""Number of items of each depth from 1 on; no training goal has unseen ones."""
CONTEXTS = 10_000
"""Number of possible goals per item, and of impossible ones."""
DISTRACTORS = (1, 2)
"""Smallest and largest number of unneeded recipes in a context."""
IMPOSSIBLE = 0
_CONSONANTS, _VOWELS = "bdlmnrstv", "aeiou"


def horizon(depth: int) -> int:
    """Steps of an episode; the shortest way takes 2 * depth + 1."""
    return 3 * depth + 2


class Crafting(Episode):
    """One episode.

    goal: the item to make.
    around: available raw items.
    recipes: (product, ingredients...) each.
    inventory: items held, without duplicates, in order of arrival.
    """

    def __init__(
        self, goal: str, around: Sequence[str], recipes: Sequence[Sequence[str]], horizon: int
    ) -> None:
        self.goal, self.around, self.horizon = goal, list(around), horizon
        self.recipes = [list(recipe) for recipe in recipes]
        self.inventory: list[str] = []

    def prompt(self) -> str:
        recipes = ", ".join(f"{item} = {' '.join(parts)}" for item, *parts in self.recipes)
        return (
            f"Goal: Make {self.goal}\nRecipes: {recipes}\nAround: {' '.join(self.around)}\n"
            f"{self.holdings()}\nAction: "
        )

    def holdings(self) -> str:
        """Return the inventory line of the prompt, the only one that actions change."""
        return f"Inventory: {' '.join(self.inventory) or 'empty'}"

    def commands(self) -> list[str]:
        """Return all actions of this goal, possible now or not."""
        craft = (f"Craft {item}" for item, *_ in self.recipes)
        return [*(f"Get {item}" for item in self.around), *craft]

    def possible_actions(self) -> list[str]:
        return [action for action in self.commands() if action[0] == "G" or self.changed(action)]

    def changed(self, action: str) -> list[str]:
        """Return the inventory after an action; empty if the action has no effect."""
        verb, item = action.split()
        ingredients = {product: parts for product, *parts in self.recipes}
        needed = ingredients[item] if verb == "Craft" else []
        if item in self.inventory or not set(needed) <= set(self.inventory):
            return []
        return [*(part for part in self.inventory if part not in needed), item]

    def act(self, action: str, rng: np.random.Generator) -> bool:
        self.inventory = self.changed(action) or self.inventory
        return self.goal in self.inventory


@dataclass(frozen=True)
class Book:
    """Items by number: raw ones, then training items by depth, then unseen ones by depth.

    depths: largest depth.
    names: (items,).
    recipes: ingredients of each item, as numbers; none for raw ones, (items,).
    needs: each item and all items that it is made from, without duplicates, (items,).
    """

    depths: int
    names: tuple[str, ...]
    recipes: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[int, ...], ...]

    @staticmethod
    def generate(depths: int) -> Book:
        """Generate items up to this depth; recipes differ between depths."""
        rng = np.random.default_rng([SEED, depths])
        recipes: list[tuple[int, ...]] = [()] * RAW
        needs: list[tuple[int, ...]] = [(item,) for item in range(RAW)]
        for split, depth in product(SPLITS, range(1, depths + 1)):
            below = _numbers(depths, SPLITS[0], depth - 1)
            for item in _numbers(depths, split, depth):
                recipes.append(_recipe(below, rng))
                parts = (need for part in recipes[item] for need in needs[part])
                needs.append(tuple(dict.fromkeys((item, *parts))))
        names = rng.choice(_all_names(), size=len(recipes), replace=False)
        return Book(depths, tuple(names.tolist()), tuple(recipes), tuple(needs))

    @property
    def trained(self) -> int:
        """Number of items, raw included, in training goals; they come first."""
        return self.craftable(SPLITS[0]).stop

    def craftable(self, split: str, depth: int | None = None) -> range:
        """Return the items to make in a split's goals, of one depth or of all."""
        if depth is not None:
            return _numbers(self.depths, split, depth)
        first, last = (_numbers(self.depths, split, level) for level in (1, self.depths))
        return range(first.start, last.stop)

    def depth(self, item: int) -> int:
        """Return the depth of an item: the number of recipes that it needs."""
        return sum(need >= RAW for need in self.needs[item])


def _numbers(depths: int, split: str, depth: int) -> range:
    if depth == 0:
        return range(RAW)
    count = ITEMS_PER_DEPTH[split]
    first = RAW + (depth - 1) * count
    if split != SPLITS[0]:
        first += depths * ITEMS_PER_DEPTH[SPLITS[0]]
    return range(first, first + count)


def _recipe(below: range, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw an item of those below, and a different raw one."""
    first, raw = int(rng.choice(below)), int(rng.integers(RAW - 1))
    raw += below.start == 0 and raw >= first
    return (first, raw) if rng.integers(2) else (raw, first)


def _all_names() -> list[str]:
    syllables = ["".join(pair) for pair in product(_CONSONANTS, _VOWELS)]
    return [a + b for a, b in product(syllables, syllables) if a != b]


@dataclass(frozen=True)
class Context:
    """The part of the world shown for a goal, as item numbers.

    around: raw items.
    recipes: items whose recipes are shown.
    missing: the needed raw item or recipe left out; -1 if the goal is possible.
    """

    around: list[int]
    recipes: list[int]
    missing: int


def context(book: Book, item: int, number: int, possible: bool) -> Context:
    """Return the context of an item's goal number `number`."""
    rng = np.random.default_rng([SEED, item, number, possible])
    needed = book.needs[item]
    missing = -1 if possible else needed[rng.integers(len(needed))]
    recipes = [need for need in needed if need >= RAW]
    size = len(recipes) + rng.integers(DISTRACTORS[0], DISTRACTORS[1] + 1)
    while len(recipes) < size:
        distractor = int(rng.integers(RAW, book.trained))
        if distractor not in needed and distractor not in recipes:
            recipes.append(distractor)
    around = list({part: 0 for recipe in recipes for part in book.recipes[recipe] if part < RAW})
    for group in (around, recipes):
        rng.shuffle(group)
        group[:] = [member for member in group if member != missing]
    return Context(around, recipes, missing)


class CraftWorld(ListedWorld):
    """Base of Craft worlds; each subclass has its own name and `depths`, the largest depth."""

    label = "Craft"
    episode = Crafting
    depths: int

    def __init__(self) -> None:
        self.proportions = tuple(0.8 / 5**depth for depth in range(self.depths + 1))
        deep = [Category(f"depth_{depth}", label=f"Depth {depth}") for depth in self._levels]
        self.categories = Categories([Category("impossible", feasible=False), *deep])

    @property
    def _levels(self) -> range:
        return range(1, self.depths + 1)

    @cached_property
    def book(self) -> Book:
        """Return the items and recipes."""
        return Book.generate(self.depths)

    def totals(self, split: str) -> tuple[int, ...]:
        counts = [CONTEXTS * len(self.book.craftable(split, depth)) for depth in self._levels]
        return sum(counts), *counts

    def arguments(self, category: int, rank: int, split: str) -> dict[str, Any]:
        item, number = self._item_and_number(category, rank, split)
        return self.scene(item, context(self.book, item, number, category != IMPOSSIBLE))

    def _item_and_number(self, category: int, rank: int, split: str) -> tuple[int, int]:
        """Return the item of a goal and the number of its context."""
        index, number = divmod(rank, CONTEXTS)
        return self.book.craftable(split, category or None)[index], number

    def scene(self, item: int, visible: Context) -> dict[str, Any]:
        """Return the arguments of an episode."""
        names, recipes = self.book.names, self.book.recipes
        return {
            "goal": names[item],
            "around": [names[i] for i in visible.around],
            "recipes": [[names[part] for part in (i, *recipes[i])] for i in visible.recipes],
            "horizon": horizon(self.book.depth(item)),
        }

    def texts(self) -> Iterator[Mapping[str, str]]:
        """Every item at every position of a prompt, and every action."""
        names = self.book.names
        for position in range(4):
            scenes = ([name if i == position else names[0] for i in range(4)] for name in names)
            yield {
                name: Crafting(goal, [around], [[product, part]], 1).prompt()
                for name, (goal, around, part, product) in zip(names, scenes, strict=True)
            }
        yield {name: self._holding([name]).prompt() for name in names}
        yield {f"{verb} {name}": f"{verb} {name}" for verb in ("Get", "Craft") for name in names}

    def longest(self) -> list[tuple[str, str]]:
        """A deepest goal with the largest context and inventory."""
        items = list(self.book.names[: 2 * (self.depths + DISTRACTORS[1]) + 1])
        return [(self._holding(items).prompt(), f"Craft {items[0]}")]

    def _holding(self, items: list[str]) -> Crafting:
        recipes = [[items[0], items[-1], items[0]]] * (self.depths + DISTRACTORS[1])
        episode = Crafting(items[0], items, recipes, 1)
        episode.inventory = items
        return episode

    def kinds(self, goals: GoalSet, positions: np.ndarray) -> list[str]:
        """Categories; for impossible goals, whether a raw item or a recipe is missing."""
        codes, categories = goals.codes_at(positions), goals.categories_at(positions)
        words = super().kinds(goals, positions)
        for row in np.flatnonzero(categories == IMPOSSIBLE).tolist():
            item, number = self._item_and_number(IMPOSSIBLE, int(codes[row]), goals.split)
            missing = context(self.book, item, number, False).missing
            words[row] = "no raw item" if missing < RAW else "no recipe"
        return words


@register_world
class Craft(CraftWorld):
    """Items of depth 1 to 4."""

    name = "craft"
    depths = 4
