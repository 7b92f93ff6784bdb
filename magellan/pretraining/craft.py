"""The language of Craft: random play with renamed items, and questions about the text.

In each scene the training items swap names at random, so the texts do not reveal the recipes of the
world, and the model learns to read recipes. A goal names what a listed recipe makes (.6), any item
of the scene, or any of the world (.2 each). Inventories are drawn at random.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from magellan.pretraining.language import Answers, Language, Questions, Triple
from magellan.pretraining.probe import Reader, probe
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.worlds.craft import CONTEXTS, Craft, Crafting, context
from magellan.worlds.little_zoo.codes import SPLITS

PHRASES = (
    "Goal:",
    " Make",
    "\nRecipes:",
    "\nAround:",
    "\nInventory:",
    " empty",
    " =",
    ",",
    "\nAction: ",
    "Get",
    "Craft",
)
_PATTERN = r"\n(?:Inventory|Around|Recipes):|\nAction: |Goal:|Get|Craft| =| ?[A-Za-z]+|,"
_WORDS = re.compile(_PATTERN)
_COMMON = 0.6
_STEPS = 4
"""Steps played in a scene, and most items in its first inventory."""


@cache
def world() -> Craft:
    """The world of this language."""
    return Craft()


def random_scene(rng: np.random.Generator) -> Crafting:
    """A training goal in a random, possibly unreachable state, with renamed items."""
    book = world().book
    item = int(rng.choice(book.craftable("train")))
    surroundings = context(book, item, int(rng.integers(CONTEXTS)), bool(rng.integers(2)))
    names = book.names[: book.trained]
    renamed = dict(zip(names, rng.permutation(np.array(names)).tolist(), strict=True))
    scene = world().scene(item, surroundings)
    scene["around"] = [renamed[name] for name in scene["around"]]
    scene["recipes"] = [[renamed[name] for name in recipe] for recipe in scene["recipes"]]
    items = sorted({name for recipe in scene["recipes"] for name in recipe})
    made = [recipe[0] for recipe in scene["recipes"]]
    nameable = [made, items, names][int(rng.choice(3, p=(0.6, 0.2, 0.2)))]
    scene["goal"] = str(rng.choice(nameable or names))
    episode = Crafting(**scene)
    count = int(rng.integers(min(_STEPS, len(items)) + 1))
    episode.inventory = rng.choice(items, size=count, replace=False).tolist()
    return episode


def random_play(rng: np.random.Generator, scenes: int = 256) -> Iterator[Triple]:
    """Endless texts of random play; the next observation is the inventory.

    Commands are uniform, including those without effect.

    scenes: number of scenes played in turn, so that consecutive texts are about different scenes.
    """
    while True:
        episodes = [random_scene(rng) for _ in range(scenes)]
        for episode in itertools.chain.from_iterable([episodes] * _STEPS):
            actions = episode.commands()
            prompt, action = episode.prompt(), actions[int(rng.integers(len(actions)))]
            episode.act(action, rng)
            yield prompt, action, f"\n{episode.holdings()}"


QUESTIONS = (
    ("Does a listed recipe make the named item?", 2),
    ("Is the named item in the inventory?", 2),
    ("How many ingredients of the named item are in the inventory?", 3),
    ("How many ingredients of the named item are around?", 3),
    ("How many ingredients of the named item are made by a listed recipe?", 3),
    ("How many recipes are listed?", 8),
    ("Is the inventory empty?", 2),
)
ABOUT_NAMED = 5
WORD_QUESTIONS = (
    ("Is this item in the inventory?", 2),
    ("Is it around?", 2),
    ("Is it the named item?", 2),
    ("Is it made by a recipe?", 2),
    ("Is it an ingredient of another item?", 2),
    ("Is it an ingredient of the named item?", 2),
    ("How many of its ingredients are in the inventory?", 3),
    ("How many of its ingredients are around?", 3),
    ("How many of its ingredients are made by a recipe?", 3),
)
"""Asked at each item after the goal, including the action's, about the text up to that item."""


def right_answers(triples: Sequence[Triple]) -> Answers:
    """Right answers about prompts and actions."""
    texts = [_read_answers(_WORDS.findall(prompt + action)) for prompt, action, _ in triples]
    words = [(row, *word) for row, (_, of_words) in enumerate(texts) for word in of_words]
    rows, places, *of_words = np.array(words, dtype=np.int64).T
    of_prompt = np.array([answers for answers, _ in texts], dtype=np.int64)
    return Answers(of_prompt, rows, places, np.stack(of_words, axis=1))


def _read_answers(words: list[str]) -> tuple[list[int], list[list[int]]]:
    """Answers about the prompt, and place and answers of each item."""
    named, of_words = words[2].strip(), []
    recipes: dict[str, list[str]] = {}
    items: dict[str, set[str]] = {"\nAround:": set(), "\nInventory:": set(), "\nAction: ": set()}
    around, inventory, _ = items.values()
    section = ""
    for place, word in enumerate(words[3:], 3):
        item = word.strip()
        if word in PHRASES:
            section = word if word.startswith("\n") else section
            continue
        if words[place + 1 : place + 2] == [" ="]:
            recipes[item] = parts = []
        elif section in items:
            items[section].add(item)
        else:
            parts.append(item)
        used = any(item in ingredients for ingredients in recipes.values())
        facts = (item in inventory, item in around, item == named, item in recipes, used)
        of_named = item in recipes.get(named, ())
        counts = _count_ingredients(item, inventory, around, recipes)
        of_words.append([place, *facts, of_named, *counts])
    counts = _count_ingredients(named, inventory, around, recipes)
    answers = (named in recipes, named in inventory, *counts, min(len(recipes), 7), not inventory)
    return [int(answer) for answer in answers], of_words


def _count_ingredients(
    item: str, inventory: set[str], around: set[str], recipes: dict[str, list[str]]
) -> list[int]:
    """Number of ingredients of an item in the inventory, around, and made by a recipe."""
    ingredients = recipes.get(item, [])
    return [
        sum(ingredient in place for ingredient in ingredients)
        for place in (inventory, around, recipes)
    ]


def random_vectors(items: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Random vectors of items, (items, width): normal but for the common first component, of mean
    squared norm 1 (nearly)."""
    vectors = rng.standard_normal((items, width)) * ((1 - _COMMON**2) / width) ** 0.5
    vectors[:, 0] = _COMMON
    return vectors


class Goals(NamedTuple):
    """Prompts at the start of an episode, and whether each goal is possible, bool (n,)."""

    prompts: list[str]
    possible: np.ndarray


def probe_goals(name: str, split: str, size: int, seed: int) -> Goals:
    """`size` goals about items of one depth, half of them possible, in random order.

    name: of a feasible category; its impossible goals are about the same items.
    """
    depth = world().categories.names.index(name)
    rng = np.random.default_rng([seed, depth, list(SPLITS).index(split)])
    book, possible = world().book, rng.permutation(size) < size // 2
    items = rng.choice(book.craftable(split, depth), size=size).tolist()
    numbers = rng.choice(CONTEXTS, size=size, replace=False).tolist()
    scenes = (
        world().scene(item, context(book, item, number, bool(is_possible)))
        for item, number, is_possible in zip(items, numbers, possible, strict=True)
    )
    return Goals([Crafting(**scene).prompt() for scene in scenes], possible)


def probe_depths(reader: Reader) -> dict[str, dict[str, float]]:
    """AUC of `probe` for each depth."""
    return probe(reader, sets=world().categories.feasible, draw=probe_goals)


CRAFT = Language(
    things=world().book.names,
    trained=world().book.trained,
    tokenizer=lambda: build_tokenizer(list(world().book.names), PHRASES, _PATTERN),
    vectors=lambda _, width, rng: random_vectors(len(world().book.names), width, rng),
    play=lambda rng, _: random_play(rng),
    invent=lambda vectors, rng: random_vectors(len(vectors), vectors.shape[1], rng),
    questions=Questions(2, QUESTIONS, ABOUT_NAMED, WORD_QUESTIONS, right_answers),
    figures=lambda _: {},
    probe=probe_depths,
    common=_COMMON,
)
