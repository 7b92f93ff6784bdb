"""A function from texts to vectors in place of a language model: the competence head reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from magellan.core.errors import InputError
from magellan.model.devices import CPU
from magellan.model.packing import PackedBatch

Embed = Callable[[Sequence[str]], Any]
"""n texts to vectors (n, width); with an attribute `moving` that is true, they change with time."""


class Embedded:
    """As much of a `Backbone` as the head asks for, without adapters: it learns alone.

    Each text is one token, its number, so that it is embedded where the head reads it: once, or
    each time where `embed` says that it is `moving`.

    Args:
        embed: texts to vectors.
        text: one of them, embedded at once to see how wide vectors are.

    Raises:
        InputError: what it gives is not one finite vector for each text.
    """

    reader = None
    passes = "vectors of texts"
    device, dtype = CPU, torch.float32
    is_encoder_decoder = sizes_itself = False
    micro_batch = 0

    def __init__(self, embed: Embed, text: str) -> None:
        self._embed = embed
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._known: dict[int, Tensor] = {}
        self.width = 0
        self.width = self._asked([text]).shape[1]

    def tokenizer(self, texts: Sequence[str], add_special_tokens: bool) -> dict[str, Any]:
        """Number of each text, as a tokenizer gives tokens."""
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
        numbers, places = torch.unique(tokens[:, 0], return_inverse=True)
        return self._vectors(numbers.tolist())[places][:, None]

    def _vectors(self, numbers: list[int]) -> Tensor:
        if getattr(self._embed, "moving", False):
            return self._asked([self._texts[number] for number in numbers])
        new = [number for number in numbers if number not in self._known]
        if new:
            found = self._asked([self._texts[number] for number in new])
            self._known.update(zip(new, found, strict=True))
        return torch.stack([self._known[number] for number in numbers])

    def _asked(self, texts: list[str]) -> Tensor:
        vectors = np.array(self._embed(texts), dtype=np.float32)
        wanted = len(texts), self.width or (*vectors.shape, 0, 0)[1]
        if vectors.shape != wanted or not np.isfinite(vectors).all():
            raise InputError(
                f"embed: an array of shape {vectors.shape} for {len(texts)} texts is not allowed; "
                f"allowed: finite numbers of shape (texts, {self.width or 'width'})"
            )
        return torch.from_numpy(vectors)

    def adapter(self, name: str) -> dict[str, Any]:
        """No parameters."""
        return {}

    def blend_adapter(self, source: str, target: str) -> None:
        """Nothing: there are none."""

    def load_adapter(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Nothing: there are none."""

    def adapter_changed(self, name: str) -> None:
        """Nothing: there are none."""
