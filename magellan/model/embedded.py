"""A text embedding function in place of a language model, for the competence head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from magellan.core.errors import InputError
from magellan.core.parsing import plain
from magellan.model.devices import CPU
from magellan.model.packing import PackedBatch

Embed = Callable[[Sequence[str]], Any]
"""n texts -> vectors (n, width); true attribute `nonstationary`: they change over time."""


class Embedded:
    """The part of `Backbone` that the head uses, without adapters: only the head is trained.

    Each text is one token, its number. It is embedded once, or, if `embed` is `nonstationary`, each
    time that the head reads it.

    Args:
        embed: texts -> vectors.
        text: an example, embedded at once to find the width.

    Raises:
        InputError: `embed` does not return one finite vector per text.
    """

    fast_pass = None
    passes = "vectors of texts"
    device, dtype = CPU, torch.float32
    is_encoder_decoder = sizes_itself = False
    micro_batch = 0

    def __init__(self, embed: Embed, text: str) -> None:
        self._embed, self.nonstationary = embed, bool(getattr(embed, "nonstationary", False))
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._vectors: dict[int, Tensor] = {}
        self.width = 0
        self.width = self._checked_embed([text]).shape[1]

    def tokenizer(self, texts: Sequence[str], add_special_tokens: bool) -> dict[str, Any]:
        """Number of each text, in the format of a tokenizer."""
        for text in texts:
            if self._numbers.setdefault(text, len(self._texts)) == len(self._texts):
                self._texts.append(text)
        return {"input_ids": [[self._numbers[text]] for text in texts]}

    def tensor(self, values: np.ndarray) -> Tensor:
        """Values as a tensor."""
        return torch.from_numpy(values)

    def batch(self, tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
        """A batch of texts by number, (batch, 1) each."""
        return PackedBatch(tokens, segments)

    def hidden_states(self, adapter: str, tokens: Tensor, *_: Tensor) -> Tensor:
        """Vectors of texts by number, tokens (batch, 1): float32 (batch, 1, width)."""
        numbers, index = torch.unique(tokens[:, 0], return_inverse=True)
        return self._embed_numbers(numbers.tolist())[index][:, None]

    def _embed_numbers(self, numbers: list[int]) -> Tensor:
        if self.nonstationary:
            return self._checked_embed([self._texts[number] for number in numbers])
        new = [number for number in numbers if number not in self._vectors]
        if new:
            vectors = self._checked_embed([self._texts[number] for number in new])
            self._vectors.update(zip(new, vectors, strict=True))
        return torch.stack([self._vectors[number] for number in numbers])

    def _checked_embed(self, texts: list[str]) -> Tensor:
        made = plain(self._embed(texts))
        try:
            vectors = np.array(made, dtype=np.float32)
        except (TypeError, ValueError):  # ragged, or no numbers
            vectors = np.zeros(0, np.float32)
        shape = len(texts), self.width or max((*vectors.shape, 0, 0)[1], 1)
        if vectors.shape != shape or not np.isfinite(vectors).all():
            raise InputError(
                f"embed: an array of shape {vectors.shape} for {len(texts)} texts is not allowed; "
                f"allowed: finite numbers of shape (texts, {self.width or 'width'})"
            )
        return torch.from_numpy(vectors)

    def adapter(self, name: str) -> dict[str, Any]:
        """No parameters: there are no adapters."""
        return {}

    def blend_adapter(self, source: str, target: str) -> None:
        """Do nothing: there are no adapters."""

    def load_adapter(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Do nothing: there are no adapters."""

    def adapter_changed(self, name: str) -> None:
        """Do nothing: there are no adapters."""
