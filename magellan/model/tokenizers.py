"""Check that a tokenizer distinguishes the texts of a world.

All unknown words become the same token. A model would train on such goals, which look alike, and
learn nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from magellan.core.errors import shown
from magellan.model.files import PIECES, stored_words
from magellan.worlds import World

PLAIN = (
    "Goal: Grow baby lion\nYou see: baby cow, carrot seed\nInventory (0/2): empty\nAction: ",
    "Grasp",
)
SAMPLE = (*PLAIN, '  Two spaces, a\ttab; 12345.67 and "it\'s" naïve: 你好, 😀 <s>')
"""Fixed texts, whose token ids tell tokenizers apart."""


def digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of the token ids of `SAMPLE`."""
    return hashlib.sha256(json.dumps(_encode(tokenizer, SAMPLE)).encode()).hexdigest()


def check_class(tokenizer: PreTrainedTokenizerBase, folder: Path) -> str | None:
    """How a tokenizer that a class made reads otherwise than its files; None if it does not.

    folder: checked, without tokenizer.json.
    """
    words, ids = tokenizer.get_vocab(), _encode(tokenizer, PLAIN)
    for token, number in stored_words(folder).items():
        if words.get(token) != number:
            return f"{shown(token)} is token {number} of the file, not {words.get(token)}"
    pieces = [path for name in PIECES if (path := folder / name).is_file()]
    if pieces:
        try:
            from sentencepiece import SentencePieceProcessor
        except ModuleNotFoundError:
            return f"{pieces[0].name} can be checked only after: pip install sentencepiece"
        expected = SentencePieceProcessor(model_file=str(pieces[0])).encode(list(PLAIN))
        return None if ids == expected else f"{shown(PLAIN[0])} has other tokens in sentencepiece"
    read = tokenizer.decode(ids[0])
    if _unknown_ids(tokenizer) & set(ids[0]) or _words(read) == _words(PLAIN[0]):
        return None
    return f"{shown(PLAIN[0])} becomes {shown(read)}"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


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
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens for unknown words."""
    ids = {tokenizer.unk_token_id}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        model = json.loads(backend.to_str())["model"]
        ids |= {model.get("unk_id"), backend.token_to_id(model.get("unk_token") or "")}
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
