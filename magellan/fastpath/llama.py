"""Hidden states of Llama-like models (Llama, SmolLM2, zoo-mini) for the nodes of a tree."""

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
    FEW_WORDS,
    SILU,
    add_linear,
    attend,
    attend_once,
    gated,
    rms_norm,
)
from magellan.fastpath.trie import Rows, Tree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magellan.model.packing import Piece


@dataclass(frozen=True)
class OneState:
    """The nodes of one state, in the order of their places.

    tokens, positions: int64 (n,).
    bias: float (1, 1, n, n), -inf where a node does not see another.
    rows: the nodes in one row.
    """

    tokens: Tensor
    positions: Tensor
    bias: Tensor
    rows: Rows


class KeptStates:
    """Hidden states of nodes behind the frozen layers.

    Args:
        compute: the frozen layers: hidden states float (n, width) of one state's nodes.
        room: bytes that may be kept; those not asked for longest go first.

    Attributes:
        computed, found: how many states were computed, and how many were at hand.
    """

    def __init__(self, compute: Callable[[OneState], Tensor], room: int) -> None:
        self._compute, self._room = compute, room
        self._kept: OrderedDict[tuple[bytes, bytes], Tensor] = OrderedDict()
        self.bytes = self.computed = self.found = 0

    @torch.no_grad()
    def of(self, tree: Tree) -> Tensor:
        """Hidden states of all nodes of a tree, float (nodes, width); the caller's own memory."""
        rows = tree.rows
        every = list(rows.nodes)
        if rows.filled is not None:
            every = [nodes[there] for nodes, there in zip(every, rows.filled, strict=True)]
        states = [self._state(tree, row, nodes) for row, nodes in enumerate(every)]
        result = states[0].new_empty(len(tree), states[0].shape[1])
        for nodes, state in zip(every, states, strict=True):
            result[nodes] = state
        return result

    def _state(self, tree: Tree, row: int, nodes: Tensor) -> Tensor:
        tokens, length = tree.tokens[nodes], len(nodes)
        at = min(row, len(tree.visible) - 1)  # one for all states that are prompts alone
        visible = tree.visible[at, :length, :length]
        key = tokens.numpy().tobytes(), np.packbits(visible.numpy()).tobytes()
        if key in self._kept:
            self.found += 1
            self._kept.move_to_end(key)
            return self._kept[key]
        self.computed += 1
        bias = tree.bias[at : at + 1, :, :length, :length]
        hidden = self._compute(OneState(tokens, tree.positions[nodes], bias, _in_a_row(length)))
        self._keep(key, hidden)
        return hidden

    def _keep(self, key: tuple[bytes, bytes], hidden: Tensor) -> None:
        size = hidden.nbytes
        if size > self._room:
            return
        while self.bytes + size > self._room:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.nbytes
        self._kept[key] = hidden
        self.bytes += size


def _in_a_row(length: int) -> Rows:
    every = torch.arange(length)
    return Rows(every[None], every, None)


@dataclass(frozen=True)
class _Layer:
    """Weights of one layer; norms' gains and the attention scale are folded in."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class LlamaWeights:
    """Weights of all layers; `first` keeps what `LlamaPass._first` made of them, by length."""

    layers: list[_Layer]
    first: dict[int, tuple[Tensor, ...]]


class LlamaPass:
    """The decoder of a `LlamaForCausalLM`: each distinct token once, the last layer where read.

    Rotary pairs, which the model keeps half a head apart, are brought side by side by reordering
    the rows of query and key weights alike: no product changes.

    Args:
        model: whose weights are read.
        adapted: how many layers carry adapters, counted from the last; 0 is all.
        room: bytes for what the layers below those make of states.
    """

    def __init__(self, model: PreTrainedModel, adapted: int = 0, room: int = 0) -> None:
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
        self.kept = KeptStates(self._frozen_part, room) if frozen else None

    @staticmethod
    def fits(model: PreTrainedModel) -> bool:
        """Whether this class computes what the model does."""
        config = model.config
        return (
            config.model_type == "llama"
            and config.hidden_act == "silu"
            and not config.attention_bias
            and not config.mlp_bias
            and config.rope_parameters["rope_type"] == "default"
        )

    def prepare(self, merged: Mapping[str, Tensor]) -> LlamaWeights:
        """Weights of every layer; `merged` are those that an adapter changes, by full name."""
        layers = [self._layer(number, merged) for number in range(self._layers)]
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
        """Multiply in the gain of the norm before a projection; scale and reorder for rotation."""
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

    def read(self, weights: LlamaWeights, piece: Piece, wanted: Tensor) -> Tensor:
        """Last hidden states of the nodes `wanted`, all different: (len(wanted), width)."""
        tree = piece.tree
        turns = self._turns(tree.positions)
        x, between = self._begin(weights, tree, turns)
        for layer in between:
            x = self._whole_layer(layer, x, turns, tree.bias, tree.rows)
        x = self._last_layer(weights.layers[-1], x, turns, tree, wanted)
        return rms_norm(x, self.epsilon) * self.gain

    def _begin(
        self, weights: LlamaWeights, tree: Tree, turns: Tensor
    ) -> tuple[Tensor, list[_Layer]]:
        """Hidden states to go on from, and the layers to come before the last one."""
        layers = weights.layers[:-1]
        if self.kept is not None:
            return self.kept.of(tree), layers[len(self._below) :]
        x = self.embeddings[tree.tokens]
        if not layers or not self._few_words:
            return x, layers
        query, key, value = self._first(weights, tree.length)
        rows = tree.rows.renamed(tree.tokens * tree.length + tree.positions)
        mixed = attend(query, key, value, tree.bias, rows, rows, self.heads)
        return self._feed_forward(layers[0], add_linear(x, mixed, layers[0].out)), layers[1:]

    def _frozen_part(self, state: OneState) -> Tensor:
        """What the layers without adapters make of one state: (n, width)."""
        turns, x = self._turns(state.positions), self.embeddings[state.tokens]
        for layer in self._below:
            x = self._whole_layer(layer, x, turns, state.bias, state.rows)
        return x

    def _whole_layer(
        self, layer: _Layer, x: Tensor, turns: Tensor, bias: Tensor, rows: Rows
    ) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        query = self._rotate(linear(normed, layer.query), turns)
        key, value = self._keys(layer, normed, turns)
        mixed = attend(query, key, value, bias, rows, rows, self.heads)
        return self._feed_forward(layer, add_linear(x, mixed, layer.out))

    @property
    def _few_words(self) -> bool:
        return len(self.embeddings) <= FEW_WORDS and not torch.is_grad_enabled()

    def _first(self, weights: LlamaWeights, length: int) -> tuple[Tensor, ...]:
        """Query, key and value of every token at every position below `length`, in that order.

        Before the first layer nothing but these two has been seen.
        """
        if length not in weights.first:
            layer = weights.layers[0]
            words = rms_norm(self.embeddings, self.epsilon).repeat_interleave(length, dim=0)
            turns = self._turns(torch.arange(length).repeat(len(self.embeddings)))
            query = self._rotate(linear(words, layer.query), turns)
            weights.first[length] = (query, *self._keys(layer, words, turns))
        return weights.first[length]

    def _turns(self, positions: Tensor) -> Tensor:
        """Rotations of the pairs of a head: complex (n, 1, head width / 2)."""
        steps = torch.arange(int(positions.max()) + 1)[:, None]
        return torch.polar(torch.ones(()), steps * self.frequencies)[positions][:, None]

    def _last_layer(
        self, layer: _Layer, x: Tensor, turns: Tensor, tree: Tree, wanted: Tensor
    ) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        key = self._repeat(self._rotate(linear(normed, layer.key), turns))
        x = x.index_select(0, wanted)
        asking = linear(rms_norm(x, self.epsilon), layer.query)
        query = self._rotate(asking, turns.index_select(0, wanted))
        rows, places = tree.select(wanted)
        bias = tree.bias[:, 0].expand(len(rows.nodes), -1, -1)[places]
        if self.groups == 1 and rows.alone:
            asks = self._apart(query.index_select(0, rows.nodes[:, 0]))
            mixed = attend_once(asks, key, normed, layer.value, bias, tree.rows)
            mixed = mixed.index_select(0, rows.owners)
        else:
            value = self._repeat(linear(normed, layer.value))
            mixed = attend(query, key, value, bias[:, None], rows, tree.rows, self.heads)
        return self._feed_forward(layer, add_linear(x, mixed, layer.out))

    def _apart(self, query: Tensor) -> Tensor:
        """Queries (n, heads * d) as (n, heads, heads * d): a head in its own part, 0 elsewhere."""
        own = torch.eye(self.heads).repeat_interleave(self.head_width, dim=1)
        return query[:, None] * own

    def _keys(self, layer: _Layer, normed: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        key = self._rotate(linear(normed, layer.key), turns)
        return self._repeat(key), self._repeat(linear(normed, layer.value))

    def _rotate(self, x: Tensor, turns: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.view(len(x), -1, self.head_width // 2, 2))
        return torch.view_as_real(pairs * turns).view(x.shape)

    def _repeat(self, x: Tensor) -> Tensor:
        """Give each query head its key or value head (grouped-query attention)."""
        if self.groups == 1:
            return x
        heads = x.view(len(x), -1, self.head_width)
        return heads.repeat_interleave(self.groups, dim=1).reshape(len(x), -1)

    def _feed_forward(self, layer: _Layer, x: Tensor) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        inner = gated(SILU, linear(normed, layer.gate), linear(normed, layer.up))
        return add_linear(x, inner, layer.down)
