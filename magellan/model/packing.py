"""Packed states: a prompt and all its candidate actions in one sequence of tokens.

The prompt is followed by one branch per candidate. Each branch sees the prompt and itself, and its
positions restart after the prompt, so one pass gives the result of separate passes over prompt +
candidate.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from magellan.core.codec import PADDING, PROMPT
from magellan.model.devices import CPU

PAIR = "policy critic_target"
"""In place of an adapter's name: each of the two reads one half of a batch, without gradients."""


class PackedBatch:
    """A batch of packed states, padded to its longest.

    Args:
        tokens: int (batch, length or more); common padding is cut.
        segments: int (batch, length or more).
        device: of its tensors.
        bucket: its length is padded to a multiple of this, so that shapes repeat.
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
        self.token_array = _resize(tokens, used, 0)
        self.segment_array = _resize(segments, used, PADDING)
        self.candidates = int(self.segment_array.max())

    def __len__(self) -> int:
        return len(self.token_array)

    def rounded(self, length: int) -> int:
        """Round a length up to a multiple of `bucket`."""
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
        """int64 (batch, length); they restart after the prompt in every branch; padding has 0."""
        segments = self.segment_array
        index = np.broadcast_to(np.arange(segments.shape[1]), segments.shape)
        prompt = (segments == PROMPT).sum(axis=1, keepdims=True)
        starts = np.ones(segments.shape, bool)
        starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
        start = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
        positions = np.where(segments == PROMPT, index, prompt + index - start)
        return self._tensor(np.where(segments == PADDING, 0, positions))

    @cached_property
    def mask(self) -> Tensor:
        """bool (batch, length, length), True where token i sees token j.

        That is, where j <= i, and j is in the prompt or in the same branch.
        """
        length = self.segments.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
        rows, columns = self.segments[:, :, None], self.segments[:, None, :]
        return causal & ((columns == PROMPT) | (columns == rows))

    def prompts(self) -> PackedBatch:
        """These states without their candidates."""
        if self.candidates == 0:
            return self
        return self._like(*self.selected(self.segment_array == PROMPT))

    def with_one_candidate(self, numbers: np.ndarray) -> PackedBatch:
        """These states with only candidate `numbers`, from 0, int64 (batch,)."""
        keep = (self.segment_array == PROMPT) | (self.segment_array == numbers[:, None] + 1)
        tokens, segments = self.selected(keep)
        return self._like(tokens, np.minimum(segments, 1))

    def twice(self) -> PackedBatch:
        """These states, and below them once more."""
        arrays = self.token_array, self.segment_array
        return self._like(*(np.concatenate([array, array]) for array in arrays))

    def _like(self, tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
        return PackedBatch(tokens, segments, self.device, self.bucket)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def selected(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and segments of the places in `keep`, (batch, length), moved to the left."""
        counts = keep.sum(axis=1)
        filled = np.arange(counts.max()) < counts[:, None]
        tokens, segments = np.zeros(filled.shape, np.int64), np.full(filled.shape, PADDING)
        tokens[filled] = self.token_array[keep]
        segments[filled] = self.segment_array[keep]
        return tokens, segments

    def parts(self, size: int, ragged: bool = False) -> list[tuple[np.ndarray, PackedBatch]]:
        """Batches of at most `size` similar states, each with its rows in this batch, (n,).

        States are sorted by length, then by tokens; by tokens alone if `ragged`.
        """
        lengths = () if ragged else ((self.segment_array != PADDING).sum(axis=1),)
        order = np.lexsort((*self.token_array.T[::-1], *lengths))
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        return [
            (rows, self._like(self.token_array[rows], self.segment_array[rows])) for rows in parts
        ]


def _resize(values: np.ndarray, length: int, filling: int) -> np.ndarray:
    """Cut or pad rows to a length."""
    missing = length - values.shape[1]
    if missing <= 0:
        return values[:, :length]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=filling)
