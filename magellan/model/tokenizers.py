"""Check that a tokenizer distinguishes the texts of a world.

All unknown words become the same token. A model would train on such goals, which look alike, and
learn nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from magellan.core.errors import shown
from magellan.worlds import World


def problem(tokenizer: PreTrainedTokenizerBase, world: World) -> str | None:
    """Why a model could not learn from the world's texts with this tokenizer; None if it could.

    The tokenizer must know every word of every prompt and action, give a token for each action, and
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
                twin = shown(first[tuple(ids)])
                return f"has a tokenizer that reads {twin} and {shown(name)} alike"
    return None


def longest(tokenizer: PreTrainedTokenizerBase, world: World) -> list[int]:
    """Tokens of the longest prompt + action; empty where the world names none."""
    pairs = world.longest()
    if not pairs:
        return []
    prompts, actions = (_encode(tokenizer, list(texts)) for texts in zip(*pairs, strict=True))
    return max((a + b for a, b in zip(prompts, actions, strict=True)), key=len)


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens for unknown words."""
    ids = {tokenizer.unk_token_id}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and getattr(backend.model, "unk_token", None):
        ids.add(backend.token_to_id(backend.model.unk_token))
    return ids - {None}


def _unknown_word(
    tokenizer: Any, text: str, ids: Sequence[int], unknown: set[int], name: str
) -> str | None:
    """First unknown word of a text, or the text's name if the tokenizer gives no offsets."""
    indices = [index for index, token in enumerate(ids) if token in unknown]
    if not indices or not tokenizer.is_fast:
        return name if indices else None
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    words = (text[slice(*spans[index])].strip() for index in indices)
    return next(filter(None, words), None)
