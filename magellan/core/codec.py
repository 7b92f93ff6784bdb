"""Tokenised states. No torch here, as estimators and the collection of episodes use them.

A packed state is the prompt followed by one branch per candidate action, in one sequence of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from magellan.core.errors import InputError, shown

PADDING = -1
PROMPT = 0
MOST_CANDIDATES = int(np.iinfo(np.int8).max)
"""Maximum number of a state's candidates, which are numbered in int8."""

Packed = tuple[np.ndarray, np.ndarray]
"""States padded to one length: tokens int32 and segments int8, both (n, length)."""


@dataclass(frozen=True)
class PackedState:
    """One state: `tokens` int32 (length,), `segments` int8 (length,): 0 prompt, k candidate k."""

    tokens: np.ndarray
    segments: np.ndarray


def number_of_ids(tokenizer: Any) -> int:
    """Largest token id + 1: more than the tokens, if some ids are not used."""
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    return 1 + max(vocabulary.values(), default=2**31 - 1)


class Codec:
    """Converts text to tokens, with a cache.

    Args:
        tokenizer: a `transformers` tokenizer, or a callable like it; no special tokens are added,
            as in the released code.
        remember: maximum number of cached texts; beyond it the cache is cleared.
    """

    def __init__(self, tokenizer: Callable[..., Any], remember: int = 100_000) -> None:
        self._tokenizer = tokenizer
        self._remember = remember
        self._cache: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text, int32 (length,)."""
        new = list(dict.fromkeys(text for text in texts if text not in self._cache))
        if len(self._cache) + len(new) > self._remember:
            self._cache.clear()
            new = list(dict.fromkeys(texts))
        if new:
            encoded = self._tokenizer(new, add_special_tokens=False)["input_ids"]
            self._cache.update(
                (text, np.asarray(ids, np.int32)) for text, ids in zip(new, encoded, strict=True)
            )
        return [self._cache[text] for text in texts]

    def decode(self, tokens: np.ndarray) -> list[str]:
        """Return the text of each row of token ids, int64 (n, length), without special tokens.

        Negative ids are left out.
        """
        rows = [row[row >= 0].tolist() for row in tokens]
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)  # type: ignore[attr-defined]
        return [text.strip() for text in texts]

    def pack(
        self, prompts: Sequence[str], candidates: Sequence[Sequence[str]]
    ) -> list[PackedState]:
        """Pack each prompt with its candidates (an empty list packs the prompt alone).

        Raises:
            InputError: a prompt has more than `MOST_CANDIDATES`, or a text gives no token.
        """
        most = max(map(len, candidates), default=0)
        if most > MOST_CANDIDATES:
            raise InputError(
                f"world: a state with {most} actions is not allowed: they are numbered in 8 bits; "
                f"allowed: at most {MOST_CANDIDATES}"
            )
        heads = self.encode(prompts)
        texts = [text for group in candidates for text in group]
        flat = self.encode(texts)
        if not all(map(len, flat)):
            empty = texts[[len(ids) for ids in flat].index(0)]
            raise InputError(f"world: action {shown(empty)} is not allowed: it has no tokens")
        packed, start = [], 0
        for prompt, head, group in zip(prompts, heads, candidates, strict=True):
            if not len(head):
                raise InputError(f"world: prompt {shown(prompt)} is not allowed: it has no tokens")
            parts = [head, *flat[start : start + len(group)]]
            segments = np.repeat(np.arange(len(parts), dtype=np.int8), list(map(len, parts)))
            packed.append(PackedState(np.concatenate(parts), segments))
            start += len(group)
        return packed

    def check(self, tokens: np.ndarray, segments: np.ndarray) -> None:
        """Check restored states, (n, length), padded.

        Raises:
            InputError: no codec with this tokenizer can have packed them.
        """
        valid = tokens.ndim == 2 and tokens.shape == segments.shape and tokens.shape[1] > 0
        if not valid or (tokens.dtype, segments.dtype) != (np.int32, np.int8):
            raise InputError(
                f"states: tokens of {tokens.dtype} {tokens.shape} and segments of {segments.dtype} "
                f"{segments.shape} are not allowed; allowed: int32 and int8 (states, length)"
            )
        left, right = segments[:, :-1], segments[:, 1:]
        step = right - left
        ordered = (right == PADDING) | (step == 0) | ((step == 1) & (left != PADDING))
        if not ordered.all() or not np.isin(segments[:, 0], (PROMPT, PADDING)).all():
            raise InputError(
                "states: the segments of one are not allowed; allowed: 0 for the prompt, then "
                f"candidates from 1 on in order, then {PADDING}"
            )
        size = number_of_ids(self._tokenizer)
        for token in tokens[(tokens < 0) | (tokens >= size)][:1].tolist():
            raise InputError(f"states: token {token} is not allowed; allowed: 0 to {size - 1}")


def stack(states: Sequence[PackedState]) -> Packed:
    """Pad states to one length."""
    length = max(len(state.tokens) for state in states)
    tokens = np.zeros((len(states), length), np.int32)
    segments = np.full((len(states), length), PADDING, np.int8)
    for row, state in enumerate(states):
        tokens[row, : len(state.tokens)] = state.tokens
        segments[row, : len(state.tokens)] = state.segments
    return tokens, segments
