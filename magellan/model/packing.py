"""States as integers: a prompt and all its candidate actions in one sequence of tokens.

A packed state is the prompt followed by one branch per candidate. Each branch sees the prompt and
itself, and its positions restart after the prompt, so one pass gives exactly what separate passes
over prompt + candidate would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from magellan.core.codec import PADDING, PROMPT
from magellan.fastpath.trie import Tree, build_tree
from magellan.model.devices import CPU

PIECE = 256
"""States that are computed together: their activations stay near the core."""


@dataclass(frozen=True)
class Piece:
    """Some states of a batch and their distinct tokens.

    states: int64 (n,), their rows in the batch.
    tree: what a decoder reads.
    prompts: what an encoder reads; None in a decoder-only model.
    """

    states: Tensor
    tree: Tree
    prompts: Tree | None


class PackedBatch:
    """A batch of packed states, padded to its longest.

    Args:
        tokens: int (batch, length or more); common padding is cut.
        segments: int (batch, length or more).
        device: where its tensors are; trees of pieces are always on the CPU.
        bucket: its length is a multiple of it, with padding at the end, so that shapes repeat.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        segments: np.ndarray,
        device: torch.device = CPU,
        bucket: int = 1,
    ) -> None:
        self.device, self.bucket = device, bucket
        used = self.rounded(int((segments != PADDING).sum(axis=1).max()))
        self.token_array = _as_long(tokens, used, 0)
        self.segment_array = _as_long(segments, used, PADDING)
        self.candidates = int(self.segment_array.max())
        self._pieces: dict[tuple[bool, bool, int | None], list[Piece]] = {}

    def __len__(self) -> int:
        return len(self.token_array)

    def rounded(self, length: int) -> int:
        """A length up to the next multiple of `bucket`."""
        return -(-length // self.bucket) * self.bucket

    @cached_property
    def tokens(self) -> Tensor:
        """int64 (batch, length)."""
        return self._tensor(self.token_array.astype(np.int64))

    @cached_property
    def segments(self) -> Tensor:
        """int64 (batch, length): 0 prompt, k candidate k, -1 padding."""
        return self._tensor(self.segment_array.astype(np.int64))

    @cached_property
    def positions(self) -> Tensor:
        """int64 (batch, length); they restart after the prompt in every branch."""
        return self._tensor(_positions(self.segment_array))

    @cached_property
    def mask(self) -> Tensor:
        """bool (batch, length, length), True where row i may attend to column j."""
        return _mask(self.segments)

    def prompts(self) -> PackedBatch:
        """The same states without their candidates."""
        return self if self.candidates == 0 else self._like(*_prompts_only(*self._arrays))

    def with_one_candidate(self, numbers: np.ndarray) -> PackedBatch:
        """The same states with one candidate each, by its number from 0, int64 (batch,)."""
        tokens, segments = self._arrays
        kept = (segments == PROMPT) | (segments == numbers[:, None] + 1)
        counts = kept.sum(axis=1)
        filled = np.arange(counts.max()) < counts[:, None]
        chosen, parts = np.zeros(filled.shape, np.int64), np.full(filled.shape, PADDING)
        chosen[filled] = tokens[kept]
        parts[filled] = np.minimum(segments[kept], 1)
        return self._like(chosen, parts)

    def _like(self, tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
        return PackedBatch(tokens, segments, self.device, self.bucket)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    @property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.token_array, self.segment_array

    def pieces(
        self, start_token: int | None, share_prompts: bool, ragged: bool = False
    ) -> list[Piece]:
        """The batch in pieces of similar states; kept, as one batch is read more than once.

        Args:
            start_token: the decoder's first token in an encoder-decoder; None where there is none.
            share_prompts: whether prompts that begin alike share their beginning (`build_tree`).
            ragged: whether what reads them has no padding; then states of all lengths are mixed,
                and share more.
        """
        key = share_prompts, ragged, start_token
        if key not in self._pieces:
            self._pieces[key] = [
                _piece(rows, part, start_token, share_prompts)
                for rows, part in self.parts(PIECE, ragged)
            ]
        return self._pieces[key]

    def parts(self, size: int, ragged: bool = False) -> list[tuple[np.ndarray, PackedBatch]]:
        """Batches of at most `size` similar states, each with its rows in this one, (n,)."""
        order = self._order(ragged)
        chosen = [order[start : start + size] for start in range(0, len(order), size)]
        return [
            (rows, self._like(self.token_array[rows], self.segment_array[rows])) for rows in chosen
        ]

    def _order(self, ragged: bool) -> np.ndarray:
        """Rows by length, and rows of one length by their tokens; by their tokens if `ragged`."""
        keys = self.token_array.T[::-1]
        if ragged:
            return np.lexsort(keys)
        return np.lexsort((*keys, (self.segment_array != PADDING).sum(axis=1)))


def _as_long(values: np.ndarray, length: int, filling: int) -> np.ndarray:
    """Rows cut to a length, or filled up to it."""
    missing = length - values.shape[1]
    if missing <= 0:
        return values[:, :length]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=filling)


def _piece(
    rows: np.ndarray, part: PackedBatch, start_token: int | None, share_prompts: bool
) -> Piece:
    states, arrays = torch.from_numpy(rows), part._arrays
    if start_token is None:
        return Piece(states, build_tree(*arrays, share_prompts), None)
    prompts = build_tree(*_prompts_only(*arrays))
    return Piece(states, build_tree(*_from_start(*arrays, start_token)), prompts)


def _prompts_only(tokens: np.ndarray, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    longest = int((segments == PROMPT).sum(axis=1).max())
    segments = segments[:, :longest]
    return tokens[:, :longest], np.where(segments == PROMPT, PROMPT, PADDING)


def _from_start(
    tokens: np.ndarray, segments: np.ndarray, start_token: int
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates of packed states behind a start token instead of their prompt."""
    row, column = np.nonzero(segments > PROMPT)
    counts = np.bincount(row, minlength=len(tokens))
    place = 1 + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    shape = len(tokens), 1 + int(counts.max())
    decoded, parts = np.full(shape, start_token), np.full(shape, PADDING)
    parts[:, 0] = PROMPT
    decoded[row, place] = tokens[row, column]
    parts[row, place] = segments[row, column]
    return decoded, parts


def _positions(segments: np.ndarray) -> np.ndarray:
    """Positions, int64, that count through the prompt and restart after it in every branch."""
    index = np.broadcast_to(np.arange(segments.shape[1]), segments.shape)
    prompt = (segments == PROMPT).sum(axis=1, keepdims=True)
    starts = np.ones(segments.shape, bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
    return np.where(segments == PROMPT, index, prompt + index - start)


def _mask(segments: Tensor) -> Tensor:
    """True where token i sees token j: not later, and in the prompt or in the same branch."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    rows, columns = segments[:, :, None], segments[:, None, :]
    return causal & ((columns == PROMPT) | (columns == rows))
