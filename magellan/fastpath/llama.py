"""Forward pass of Llama-like models (Llama, SmolLM2, zoo-mini) over the nodes of a tree."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from magellan.fastpath.layers import (
    SILU,
    add_linear,
    attend,
    attend_once,
    gated,
    rms_norm,
    tabulates,
)
from magellan.fastpath.reading import FastPass, Piece
from magellan.fastpath.trie import Rows, Tree

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class StateCache:
    """LRU cache of the frozen layers' output.

    Args:
        compute: the frozen layers: the n nodes of one state, in the order of its row, as tokens and
            positions, int64 (n,) each, and bias, float (1, 1, n, n), which is -inf where a node
            does not see another -> hidden states, float (n, width).
        room: most bytes in the cache.

    Attributes:
        computed, hits: number of states that were computed, and found in the cache.
    """

    def __init__(self, compute: Callable[[Tensor, Tensor, Tensor], Tensor], room: int) -> None:
        self._compute, self._room = compute, room
        self._states: OrderedDict[tuple[bytes, bytes], Tensor] = OrderedDict()
        self.bytes = self.computed = self.hits = 0

    @torch.no_grad()
    def of(self, tree: Tree) -> Tensor:
        """Hidden states of all nodes of a tree, float (nodes, width), in new memory."""
        rows = tree.rows
        nodes_of = list(rows.nodes)
        if rows.filled is not None:
            nodes_of = [nodes[filled] for nodes, filled in zip(nodes_of, rows.filled, strict=True)]
        states = [self._state(tree, row, nodes) for row, nodes in enumerate(nodes_of)]
        result = states[0].new_empty(len(tree), states[0].shape[1])
        for nodes, state in zip(nodes_of, states, strict=True):
            result[nodes] = state
        return result

    def _state(self, tree: Tree, row: int, nodes: Tensor) -> Tensor:
        tokens, length = tree.tokens[nodes], len(nodes)
        at = min(row, len(tree.visible) - 1)  # states without candidates share one
        visible = tree.visible[at, :length, :length]
        key = tokens.numpy().tobytes(), np.packbits(visible.numpy()).tobytes()
        if key in self._states:
            self.hits += 1
            self._states.move_to_end(key)
            return self._states[key]
        self.computed += 1
        bias = tree.bias[at : at + 1, :, :length, :length]
        hidden = self._compute(tokens, tree.positions[nodes], bias)
        if hidden.nbytes <= self._room:
            self.bytes += hidden.nbytes
            self._states[key] = hidden
        while self.bytes > self._room:
            _, oldest = self._states.popitem(last=False)
            self.bytes -= oldest.nbytes
        return hidden


@dataclass(frozen=True)
class _Layer:
    """Weights of one layer, with the norms' gains and the attention scale folded in."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class LlamaWeights:
    """Weights of all layers; `tables` caches `LlamaPass._first_tables` by length."""

    layers: list[_Layer]
    tables: dict[int, tuple[Tensor, ...]]


class LlamaPass(FastPass):
    """The decoder of a `LlamaForCausalLM`: each distinct token once, the last layer where needed.

    Rotary pairs, which the model stores half a head apart, are made adjacent by reordering the rows
    of query and key weights alike: no product changes.

    Args:
        model: whose weights are used.
        adapted: number of layers with adapters, counted from the last; 0 is all.
        room: bytes to cache the output of the layers below those.
    """

    def __init__(self, model: PreTrainedModel, adapted: int = 0, room: int = 0) -> None:
        super().__init__()
        config = model.config
        self.heads: int = config.num_attention_heads
        self.groups: int = self.heads // config.num_key_value_heads
        self.head_width: int = config.head_dim
        self.epsilon: float = config.rms_norm_eps
        self.embeddings: Tensor = model.get_input_embeddings().weight
        self.frequencies: Tensor = model.model.rotary_emb.inv_freq
        self.gain: Tensor = model.model.norm.weight
        self._frozen = dict(model.named_parameters())
        self._layers: int = config.num_hidden_layers
        self._folded = {name: self._fold(name, weight) for name, weight in self._frozen.items()}
        frozen = self._layers - adapted if adapted else 0
        self._below = [self._layer(number, {}) for number in range(frozen)]
        self.cache = StateCache(self._frozen_layers, room) if frozen else None

    @staticmethod
    def fits(model: PreTrainedModel) -> bool:
        """Whether this class supports the model."""
        config = model.config
        return (
            config.model_type == "llama"
            and config.hidden_act == "silu"
            and not config.attention_bias
            and not config.mlp_bias
            and config.rope_parameters["rope_type"] == "default"
        )

    def prepare(self, changed: Mapping[str, Tensor]) -> LlamaWeights:
        """Weights of every layer; `changed` are those with an adapter, by full name."""
        layers = [self._layer(number, changed) for number in range(self._layers)]
        return LlamaWeights(layers, {})

    def _layer(self, number: int, merged: Mapping[str, Tensor]) -> _Layer:
        def weight(name: str) -> Tensor:
            full = f"model.layers.{number}.{name}.weight"
            return self._fold(full, merged[full]) if full in merged else self._folded[full]

        return _Layer(
            *(weight(f"self_attn.{name}_proj") for name in "qkvo"),
            *(weight(f"mlp.{name}_proj") for name in ("gate", "up", "down")),
        )

    def _fold(self, name: str, weight: Tensor) -> Tensor:
        """Fold the gain of the norm before a projection into it; scale and reorder for rotation."""
        layer, _, part = name.removesuffix(".weight").rpartition(".")
        if part in ("q_proj", "k_proj", "v_proj"):
            gain = self._frozen[f"{layer.removesuffix('.self_attn')}.input_layernorm.weight"]
        elif part in ("gate_proj", "up_proj"):
            gain = self._frozen[f"{layer.removesuffix('.mlp')}.post_attention_layernorm.weight"]
        else:
            return weight
        if part == "q_proj":
            gain = gain * self.head_width**-0.5
        weight = weight * gain
        if part in ("q_proj", "k_proj"):
            halves = weight.view(-1, 2, self.head_width // 2, weight.shape[1])
            weight = halves.transpose(1, 2).reshape(weight.shape)
        return weight

    def read(self, weights: LlamaWeights, piece: Piece, nodes: Tensor) -> Tensor:
        """Last hidden states of distinct nodes, (len(nodes), width)."""
        tree = piece.tree
        rotations = self._rotations(tree.positions)
        x, layers = self._first_states(weights, tree)
        for layer in layers:
            x = self._full_layer(layer, x, rotations, tree.bias, tree.rows)
        x = self._last_layer(weights.layers[-1], x, rotations, tree, nodes)
        return rms_norm(x, self.epsilon) * self.gain

    def _first_states(self, weights: LlamaWeights, tree: Tree) -> tuple[Tensor, list[_Layer]]:
        """Hidden states of all nodes, and the layers left between them and the last one."""
        layers = weights.layers[:-1]
        if self.cache is not None:
            return self.cache.of(tree), layers[len(self._below) :]
        x = self.embeddings[tree.tokens]
        if not layers or not tabulates(self.embeddings):
            return x, layers
        query, key, value = self._first_tables(weights, tree.length)
        rows = tree.rows.relabeled(tree.tokens * tree.length + tree.positions)
        attended = attend(query, key, value, tree.bias, rows, rows, self.heads)
        return self._feed_forward(layers[0], add_linear(x, attended, layers[0].out)), layers[1:]

    def _frozen_layers(self, tokens: Tensor, positions: Tensor, bias: Tensor) -> Tensor:
        """Hidden states of one state behind the layers without adapters, (n, width)."""
        nodes = torch.arange(len(tokens))
        row = Rows(nodes[None], nodes, None)
        rotations, x = self._rotations(positions), self.embeddings[tokens]
        for layer in self._below:
            x = self._full_layer(layer, x, rotations, bias, row)
        return x

    def _full_layer(
        self, layer: _Layer, x: Tensor, rotations: Tensor, bias: Tensor, rows: Rows
    ) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        query = self._rotate(linear(normed, layer.query), rotations)
        key, value = self._keys_and_values(layer, normed, rotations)
        attended = attend(query, key, value, bias, rows, rows, self.heads)
        return self._feed_forward(layer, add_linear(x, attended, layer.out))

    def _first_tables(self, weights: LlamaWeights, length: int) -> tuple[Tensor, ...]:
        """Query, key and value in the first layer of every token at every position below `length`.

        The input of the first layer depends on token and position alone.
        """
        if length not in weights.tables:
            layer = weights.layers[0]
            words = rms_norm(self.embeddings, self.epsilon).repeat_interleave(length, dim=0)
            rotations = self._rotations(torch.arange(length).repeat(len(self.embeddings)))
            query = self._rotate(linear(words, layer.query), rotations)
            weights.tables[length] = (query, *self._keys_and_values(layer, words, rotations))
        return weights.tables[length]

    def _rotations(self, positions: Tensor) -> Tensor:
        """Rotations of the pairs of a head: complex (n, 1, head width / 2)."""
        steps = torch.arange(int(positions.max()) + 1)[:, None]
        return torch.polar(torch.ones(()), steps * self.frequencies)[positions][:, None]

    def _last_layer(
        self, layer: _Layer, x: Tensor, rotations: Tensor, tree: Tree, nodes: Tensor
    ) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        key = self._repeat(self._rotate(linear(normed, layer.key), rotations))
        x = x.index_select(0, nodes)
        query = linear(rms_norm(x, self.epsilon), layer.query)
        query = self._rotate(query, rotations.index_select(0, nodes))
        rows, places = tree.select(nodes)
        bias = tree.bias[:, 0].expand(len(rows.nodes), -1, -1)[places]
        if self.groups == 1 and rows.single:
            queries = self._block_diagonal(query.index_select(0, rows.nodes[:, 0]))
            attended = attend_once(queries, key, normed, layer.value, bias, tree.rows)
            attended = attended.index_select(0, rows.owners)
        else:
            value = self._repeat(linear(normed, layer.value))
            attended = attend(query, key, value, bias[:, None], rows, tree.rows, self.heads)
        return self._feed_forward(layer, add_linear(x, attended, layer.out))

    def _block_diagonal(self, query: Tensor) -> Tensor:
        """Queries (n, heads * d) as (n, heads, heads * d): each head in its block, 0 elsewhere."""
        blocks = torch.eye(self.heads).repeat_interleave(self.head_width, dim=1)
        return query[:, None] * blocks

    def _keys_and_values(
        self, layer: _Layer, normed: Tensor, rotations: Tensor
    ) -> tuple[Tensor, Tensor]:
        key = self._rotate(linear(normed, layer.key), rotations)
        return self._repeat(key), self._repeat(linear(normed, layer.value))

    def _rotate(self, x: Tensor, rotations: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.view(len(x), -1, self.head_width // 2, 2))
        return torch.view_as_real(pairs * rotations).view(x.shape)

    def _repeat(self, x: Tensor) -> Tensor:
        """Repeat key or value heads for each query head of a group (grouped-query attention)."""
        if self.groups == 1:
            return x
        heads = x.view(len(x), -1, self.head_width)
        return heads.repeat_interleave(self.groups, dim=1).reshape(len(x), -1)

    def _feed_forward(self, layer: _Layer, x: Tensor) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        inner = gated(SILU, linear(normed, layer.gate), linear(normed, layer.up))
        return add_linear(x, inner, layer.down)
