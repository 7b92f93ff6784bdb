"""Whether a tokenizer can tell the texts of Little-Zoo apart.

A word that it does not know becomes one token for all such words. A model that reads it trains, and
learns nothing: all goals look alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from magellan.errors import shown
from magellan.worlds.little_zoo.text import initial_prompt, layout, prompt, scene_words
from magellan.worlds.little_zoo.vocabulary import OBJECTS, WATER, display_name
from magellan.worlds.little_zoo.world import (
    FREE,
    GO_TO,
    GRASP_ACTION,
    GROW,
    HELD,
    NOTHING,
    RELEASE,
    SCENE_SIZE,
    VERBS,
    State,
    goal_text,
)

Group = Mapping[str, str]
"""Texts that must differ, by what they tell."""


def problem(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """What a tokenizer does to texts of the world that no model could learn from; None if nothing.

    It knows every word of every prompt and action, gives some token for each action, and gives
    different tokens for different objects and goals.
    """
    unknown = _unknown_ids(tokenizer)
    for group in groups():
        encoded = _encode(tokenizer, list(group.values()))
        first: dict[tuple[int, ...], str] = {}
        for (name, text), ids in zip(group.items(), encoded, strict=True):
            word = _unknown_word(tokenizer, text, ids, unknown, name)
            if word is not None:
                return f"has a tokenizer that does not know {shown(word)}"
            if not ids:
                return f"has a tokenizer that gives no token for {shown(text)}"
            if first.setdefault(tuple(ids), name) != name:
                alike = shown(first[tuple(ids)])
                return f"has a tokenizer that reads {alike} and {shown(name)} alike"
    return None


def longest(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens of a prompt full of the object with the longest name, and an action behind it."""
    actions = [f"{RELEASE} {display_name(each, grown=False)}" for each in range(len(OBJECTS))]
    encoded = _encode(tokenizer, actions)
    worst = max(range(len(OBJECTS)), key=lambda each: len(encoded[each]))
    full = initial_prompt(goal_text(GROW, worst), (worst,) * SCENE_SIZE, standing_on=0)
    return _encode(tokenizer, [full])[0] + encoded[worst]


def groups() -> Iterator[Group]:
    """Prompts that differ in one object at one place, prompts that differ in the goal, actions."""
    names = {
        display_name(each, grown): (each, grown)
        for each in range(len(OBJECTS))
        for grown in (False, True)
    }
    start = goal_text(0, WATER)
    for at in (0, 1):
        for place, standing in ((FREE, False), (FREE, True), (HELD, False)):
            yield {
                name: prompt(start, _observation(each, grown, at, place, standing))
                for name, (each, grown) in names.items()
            }
    seen = _observation(WATER, False, 0, FREE, False)
    goals = [goal_text(verb, each) for verb in range(len(VERBS)) for each in range(len(OBJECTS))]
    yield {goal: prompt(goal, seen) for goal in goals}
    actions = [f"{verb} {name}" for verb in (GO_TO, RELEASE) for name in names]
    yield {action: action for action in (GRASP_ACTION, *actions)}


def _observation(identity: int, grown: bool, at: int, place: int, standing: bool) -> str:
    """What is seen where one object is special; all others are water, and held if it is."""
    scene, places = [WATER] * SCENE_SIZE, [FREE] * SCENE_SIZE
    scene[at] = identity
    places[: at + 1] = [place] * (at + 1)
    grew = tuple(grown and position == at for position in range(SCENE_SIZE))
    state = State(tuple(places), grew, at if standing else NOTHING)
    return layout(state).observation(scene_words(tuple(scene)))


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens that stand for what a tokenizer does not know."""
    ids = {tokenizer.unk_token_id}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and getattr(backend.model, "unk_token", None):
        ids.add(backend.token_to_id(backend.model.unk_token))
    return ids - {None}


def _unknown_word(
    tokenizer: Any, text: str, ids: Sequence[int], unknown: set[int], name: str
) -> str | None:
    """The first unknown part of a text that is not blank; its name where that cannot be told."""
    where = [place for place, each in enumerate(ids) if each in unknown]
    if not where or not tokenizer.is_fast:
        return name if where else None
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    words = (text[slice(*spans[place])].strip() for place in where)
    return next(filter(None, words), None)
