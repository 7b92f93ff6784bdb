"""Operations that a pass of the model needs, whoever computes it: for model FLOPs utilisation.

Counted are products only, and real tokens only: 2 operations per weight of a linear layer and
token, 4 per visible pair of tokens, layer and unit of attention's width. A gradient takes the same
again, as frozen weights need none of their own; that of an adapter takes twice its own. Padding,
recomputation and heads do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers.pytorch_utils import Conv1D

from magellan.core.codec import PROMPT
from magellan.model.backbone import Backbone

CROSS = ("EncDecAttention.k", "EncDecAttention.v", "encoder_attn.k_proj", "encoder_attn.v_proj")
"""Layers of a decoder that read what the encoder said, by the ends of their names."""


@dataclass(frozen=True)
class Stack:
    """An encoder or a decoder.

    linear: weights of its linear layers that read its own tokens; `cross` those that read the
        encoder's.
    adapters: numbers of one adapter's A and B.
    layers, width: of its attention.
    """

    linear: int
    cross: int
    adapters: int
    layers: int
    width: int


@dataclass(frozen=True)
class ModelFlops:
    """Operations of a model's passes, 10^9.

    encoder: None in a decoder-only model.
    embeddings: numbers of the output layer, which counts where log-probabilities are scored.
    """

    decoder: Stack
    encoder: Stack | None
    embeddings: int

    def forward(self, segments: np.ndarray, scored: bool = False) -> float:
        """One pass over packed states, `segments` (batch, length) as in a batch.

        scored: whether the output layer is applied before every token of a candidate.
        """
        own, adapters = self._linear(segments)
        return (own + adapters + self._attention(segments) + scored * self._scores(segments)) / 1e9

    def with_gradients(self, segments: np.ndarray, scored: bool = False) -> float:
        """The same, forward and backward."""
        own, adapters = self._linear(segments)
        attention, scores = self._attention(segments), scored * self._scores(segments)
        return (2 * own + 3 * adapters + 3 * attention + 2 * scores) / 1e9

    def _linear(self, segments: np.ndarray) -> tuple[float, float]:
        """Operations of linear layers, and of adapters beside them."""
        prompt, candidate = (segments == PROMPT).sum(), (segments > PROMPT).sum()
        decoder, encoder = self.decoder, self.encoder
        if encoder is None:
            tokens = prompt + candidate
            return 2.0 * decoder.linear * tokens, 2.0 * decoder.adapters * tokens
        tokens = candidate + _starts(segments).sum()
        own = encoder.linear * prompt + decoder.linear * tokens + decoder.cross * prompt
        return 2.0 * own, 2.0 * (encoder.adapters * prompt + decoder.adapters * tokens)

    def _attention(self, segments: np.ndarray) -> float:
        prompt = (segments == PROMPT).sum(axis=1).astype(float)
        most = max(int(segments.max()), 0)
        numbers = np.arange(1, most + 1)[:, None, None]
        lengths = (segments == numbers).sum(axis=2).astype(float)  # (candidates, n)
        decoder, encoder = self.decoder, self.encoder
        per_pair = 4.0 * decoder.layers * decoder.width
        own = lengths * (lengths + 1) / 2
        if encoder is None:
            pairs = (prompt * (prompt + 1) / 2).sum() + own.sum() + (lengths * prompt).sum()
            return per_pair * pairs
        starts = _starts(segments)
        decoded = lengths.sum(axis=0) + starts
        inside = own.sum() + lengths.sum() + starts.sum()
        across = (decoded * prompt).sum()
        whole = 4.0 * encoder.layers * encoder.width * (prompt**2).sum()
        return whole + per_pair * (inside + across)

    def _scores(self, segments: np.ndarray) -> float:
        return 2.0 * self.embeddings * (segments > PROMPT).sum()


def _starts(segments: np.ndarray) -> np.ndarray:
    """Start tokens that a decoder reads: one per candidate, or one for a prompt alone, (n,)."""
    return np.maximum(segments.max(axis=1), 1)


def flops_of(backbone: Backbone) -> ModelFlops:
    """Of a model that is loaded."""
    stacks = {part: _stack(module) for part, module in backbone.stacks().items()}
    return ModelFlops(stacks["decoder"], stacks.get("encoder"), backbone.token_embeddings().numel())


def _stack(module: nn.Module) -> Stack:
    linear = cross = adapters = 0
    for name, layer in module.named_modules():
        if ".lora_" in name:
            continue
        if isinstance(layer, LoraLayer):
            first = next(iter(layer.lora_A))
            adapters += sum(each[first].weight.numel() for each in (layer.lora_A, layer.lora_B))
        elif isinstance(layer, nn.Linear | Conv1D):
            if name.removesuffix(".base_layer").endswith(CROSS):
                cross += _weights(layer)
            else:
                linear += _weights(layer)
    config: Any = module.config
    heads = config.num_attention_heads
    per_head = getattr(config, "d_kv", None) or getattr(config, "head_dim", None)
    layers = next(len(each) for each in module.children() if isinstance(each, nn.ModuleList))
    return Stack(linear, cross, adapters, layers, heads * (per_head or config.hidden_size // heads))


def _weights(layer: nn.Linear | Conv1D) -> int:
    """By its shape: weights in 4 bits lie packed."""
    if isinstance(layer, Conv1D):
        return int(layer.nx * layer.nf)
    return layer.in_features * layer.out_features
