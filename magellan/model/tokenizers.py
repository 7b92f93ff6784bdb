"""Whether a tokenizer can tell the texts of a world apart.

A word that it does not know becomes one token for all such words. A model that reads it trains, and
learns nothing: all goals look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from magellan.core.errors import shown
from magellan.worlds import World


def problem(tokenizer: PreTrainedTokenizerBase, world: World) -> str | None:
    """What a tokenizer does to texts of the world that no model could learn from; None if nothing.

    It knows every word of every prompt and action, gives some token for each action, and gives
    different tokens for different objects and goals, as far as the world names them.
    """
    unknown = _unknown_ids(tokenizer)
    for group in world.texts():
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


def longest(tokenizer: PreTrainedTokenizerBase, world: World) -> list[int]:
    """Tokens of the longest prompt with an action behind it; none where the world names none."""
    pairs = world.longest()
    if not pairs:
        return []
    prompts, actions = (_encode(tokenizer, list(texts)) for texts in zip(*pairs, strict=True))
    return max((a + b for a, b in zip(prompts, actions, strict=True)), key=len)


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
