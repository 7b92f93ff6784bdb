"""States as integers: a prompt and all its candidate actions in one sequence of tokens.

A packed state is the prompt followed by one branch per candidate. Each branch sees the prompt and
itself, and its positions restart after the prompt, so one pass gives exactly what separate passes
over prompt + candidate would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

PADDING = -1
PROMPT = 0


@dataclass(frozen=True)
class PackedState:
    """One state: `tokens` int32 (length,), `segments` int8 (length,): 0 prompt, k candidate k."""

    tokens: np.ndarray
    segments: np.ndarray


@dataclass(frozen=True)
class PackedBatch:
    """A batch of packed states, padded to its longest.

    Shapes: `tokens`, `segments`, `positions` int64 (batch, length); `mask` bool (batch, length,
    length); `candidates` int, the largest number of candidates in the batch.
    """

    tokens: Tensor
    segments: Tensor
    positions: Tensor
    mask: Tensor
    candidates: int


class Codec:
    """Text to tokens, remembered: the same text is tokenised once.

    Args:
        tokenizer: a `transformers` tokenizer; no special tokens are added, as in the released code.
        remember: number of prompts kept before the memory is emptied.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, remember: int = 100_000) -> None:
        self._tokenizer = tokenizer
        self._remember = remember
        self._known: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, int32 (length,)."""
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if len(self._known) + len(new) > self._remember:
            self._known.clear()
            new = list(dict.fromkeys(texts))
        if new:
            encoded = self._tokenizer(new, add_special_tokens=False)["input_ids"]
            self._known.update(
                (text, np.asarray(ids, np.int32)) for text, ids in zip(new, encoded, strict=True)
            )
        return [self._known[text] for text in texts]

    def pack(
        self, prompts: Sequence[str], candidates: Sequence[Sequence[str]]
    ) -> list[PackedState]:
        """Pack each prompt with its candidates (an empty list packs the prompt alone)."""
        heads = self.encode(prompts)
        flat = self.encode([text for group in candidates for text in group])
        packed, start = [], 0
        for head, group in zip(heads, candidates, strict=True):
            packed.append(_pack(head, flat[start : start + len(group)]))
            start += len(group)
        return packed


def _pack(head: np.ndarray, branches: Sequence[np.ndarray]) -> PackedState:
    lengths = [len(head), *(len(branch) for branch in branches)]
    return PackedState(
        np.concatenate([head, *branches]),
        np.repeat(np.arange(len(lengths), dtype=np.int8), lengths),
    )


def stack(states: Sequence[PackedState]) -> tuple[np.ndarray, np.ndarray]:
    """Pad states to one length: tokens int32 and segments int8, both (batch, length)."""
    length = max(len(state.tokens) for state in states)
    tokens = np.zeros((len(states), length), np.int32)
    segments = np.full((len(states), length), PADDING, np.int8)
    for row, state in enumerate(states):
        tokens[row, : len(state.tokens)] = state.tokens
        segments[row, : len(state.tokens)] = state.segments
    return tokens, segments


def batch(tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
    """Make a batch of padded tokens and segments, both (batch, length); cuts common padding."""
    used = int((segments != PADDING).sum(axis=1).max())
    ids = torch.from_numpy(tokens[:, :used].astype(np.int64))
    parts = torch.from_numpy(segments[:, :used].astype(np.int64))
    return PackedBatch(ids, parts, _positions(parts), _mask(parts), int(segments.max()))


def _positions(segments: Tensor) -> Tensor:
    """Positions that count through the prompt and restart after it in every branch."""
    index = torch.arange(segments.shape[1]).expand_as(segments)
    prompt = (segments == PROMPT).sum(dim=1, keepdim=True)
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start = torch.where(starts, index, 0).cummax(dim=1).values
    return torch.where(segments == PROMPT, index, prompt + index - start)


def _mask(segments: Tensor) -> Tensor:
    """True where token i sees token j: not later, and in the prompt or in the same branch."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    rows, columns = segments[:, :, None], segments[:, None, :]
    return causal & ((columns == PROMPT) | (columns == rows))
