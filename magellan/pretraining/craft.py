"""Craft as a language: random play among renamed items, and questions about what a text says.

In each scene the items of training swap names at random, so the texts do not tell the recipes of
the world, and what is learnt is to read recipes. Half of the goals name any item. Inventories are
drawn, not reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from magellan.pretraining.language import Language, Questions, Triple
from magellan.pretraining.probe import Reader, probe
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.worlds.craft import CONTEXTS, Craft, Crafting, context
from magellan.worlds.little_zoo.codes import SPLITS

PHRASES = (
    "Goal:",
    " Make",
    "\nInventory:",
    " empty",
    "\nAround:",
    "\nRecipes:",
    " ->",
    ",",
    "\nAction: ",
    "Get",
    "Craft",
)
_PATTERN = r"\n(?:Inventory|Around|Recipes):|\nAction: |Goal:|Get|Craft| ->| ?[A-Za-z]+|,"
_HELD = 4
"""Items that a scene begins with at most, and the steps that are played in it."""


@cache
def world() -> Craft:
    """The world of the language."""
    return Craft()


def random_scene(rng: np.random.Generator) -> Crafting:
    """A goal of training in a state that need not be on any way, under other names."""
    book = world().book
    item = int(rng.choice(book.made("train")))
    shown = context(book, item, int(rng.integers(CONTEXTS)), bool(rng.integers(2)))
    names = book.names[: book.trained]
    other = dict(zip(names, rng.permutation(np.array(names)).tolist(), strict=True))
    scene = world().scene(item, shown)
    scene["around"] = [other[name] for name in scene["around"]]
    scene["recipes"] = [[other[name] for name in recipe] for recipe in scene["recipes"]]
    scene["goal"] = other[scene["goal"] if rng.random() < 0.5 else str(rng.choice(names))]
    episode = Crafting(**scene)
    there = sorted({name for recipe in episode.recipes for name in recipe})
    count = min(int(rng.integers(_HELD + 1)), len(there))
    episode.inventory = rng.choice(np.array(there or [""]), size=count, replace=False).tolist()
    return episode


def random_play(rng: np.random.Generator) -> Iterator[Triple]:
    """Endless texts of random play: what is seen next is the inventory, the rest stays."""
    while True:
        episode = random_scene(rng)
        for _ in range(_HELD):
            actions = episode.possible_actions()
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
ACTION_QUESTIONS = (
    ("Is the item of the action in the inventory?", 2),
    ("Is it the named item?", 2),
    ("Is it an ingredient of the named item?", 2),
    ("Is it an ingredient of a listed recipe?", 2),
    ("How many of its ingredients are in the inventory?", 3),
    ("How many of its ingredients are around?", 3),
    ("How many of its ingredients are made by a listed recipe?", 3),
)


def right_answers(triples: Sequence[Triple], _: object = None) -> np.ndarray:
    """Numbers of the right answers, int64 (texts, questions): of the prompt, then of the action."""
    return np.array([_answers(prompt, action) for prompt, action, _ in triples], dtype=np.int64)


def _answers(prompt: str, action: str) -> list[int]:
    goal, inventory, around, listed = (line.split()[1:] for line in prompt.split("\n")[:4])
    held, lying = set(inventory) - {"empty"}, set(around)
    parts = [part.split() for part in " ".join(listed).split(",")]
    made_of = {words[-1]: words[:-2] for words in parts if words}
    named, item = goal[-1], action.split()[-1]
    of_named, of_item = made_of.get(named, []), made_of.get(item, [])
    places = (held, lying, set(made_of))
    return [
        named in made_of,
        named in held,
        *(sum(each in place for each in of_named) for place in places),
        min(len(made_of), 7),
        not held,
        item in held,
        item == named,
        item in of_named,
        any(item in ingredients for ingredients in made_of.values()),
        *(sum(each in place for each in of_item) for place in places),
    ]


def random_vectors(_: Path | None, width: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors of the items, (items, width): normal, of mean squared norm 1. They mean nothing."""
    return rng.standard_normal((len(world().book.names), width)) * width**-0.5


@dataclass(frozen=True)
class Goals:
    """Goals by their prompts; possible: bool (n,)."""

    texts: list[str]
    possible: np.ndarray

    def prompts(self) -> list[str]:
        """Prompts at the start of an episode."""
        return self.texts


def probe_goals(name: str, split: str, size: int, seed: int) -> Goals:
    """`size` goals about items of one depth, half of them possible, in random order.

    name: of a category that can be reached; its impossible goals are about the same items.
    """
    depth = world().categories.names.index(name)
    rng = np.random.default_rng([seed, depth, list(SPLITS).index(split)])
    book, possible = world().book, rng.permutation(size) < size // 2
    items = rng.choice(book.made(split, depth), size=size).tolist()
    numbers = rng.choice(CONTEXTS, size=size, replace=False).tolist()
    scenes = (
        world().scene(item, context(book, item, number, bool(can)))
        for item, number, can in zip(items, numbers, possible, strict=True)
    )
    return Goals([Crafting(**scene).prompt() for scene in scenes], possible)


def probe_depths(reader: Reader) -> dict[str, dict[str, float]]:
    """What `probe` finds for each depth."""
    return probe(reader, sets=world().categories.feasible, draw=probe_goals)


def write_card(output: Path, recipe: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write README.md beside the weights: what went in, what did not, and the measured figures."""
    (output / "README.md").write_text("", encoding="utf-8")


CRAFT = Language(
    things=world().book.names,
    trained=world().book.trained,
    tokenizer=lambda: build_tokenizer(list(world().book.names), PHRASES, _PATTERN),
    vectors=random_vectors,
    play=lambda rng, _: random_play(rng),
    invent=lambda vectors, rng: rng.standard_normal(vectors.shape) * vectors.shape[1] ** -0.5,
    questions=lambda _: Questions(2, QUESTIONS, ABOUT_NAMED, ACTION_QUESTIONS, right_answers),
    figures=lambda _: {},
    probe=probe_depths,
    card=write_card,
)
