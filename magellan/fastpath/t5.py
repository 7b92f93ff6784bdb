"""Forward pass of T5 and flan-T5: each prompt encoded once, its candidates decoded together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from magellan.fastpath.layers import (
    GELU_TANH,
    add_linear,
    attend,
    attend_once,
    gated_linear,
    rms_norm,
    tabulates,
)
from magellan.fastpath.reading import FastPass, Piece
from magellan.fastpath.trie import Rows, Tree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTENTION = ("SelfAttention", "EncDecAttention")


@dataclass(frozen=True)
class _Attention:
    """Projections of one attention layer, with the gain of the norm before them folded in."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor


@dataclass(frozen=True)
class _Block:
    """One block: self-attention, cross-attention (decoder only), feed-forward."""

    own: _Attention
    cross: _Attention | None
    inner: tuple[Tensor, ...]
    outer: Tensor


@dataclass(frozen=True)
class T5Weights:
    """Blocks of encoder and decoder."""

    encoder: list[_Block]
    decoder: list[_Block]


class T5Pass(FastPass):
    """Encoder and decoder of a `T5ForConditionalGeneration`, each distinct token once.

    The decoder reads start token + candidate; candidates of a state share the start token and their
    common prefix. The last layer is computed only for nodes whose output is used.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        config = model.config
        self.start_token: int = config.decoder_start_token_id
        self.heads: int = config.num_heads
        self.epsilon: float = config.layer_norm_epsilon
        self.embeddings: Tensor = model.get_input_embeddings().weight
        self._model = model
        self._frozen = dict(model.named_parameters())
        self._folded = {name: self._fold(name, weight) for name, weight in self._frozen.items()}
        self._biases: dict[tuple[str, int], Tensor] = {}
        self._gain: Tensor = model.decoder.final_layer_norm.weight

    @staticmethod
    def fits(model: PreTrainedModel) -> bool:
        """Whether this class supports the model."""
        config = model.config
        if config.model_type != "t5":
            return False
        return (config.is_gated_act, config.dense_act_fn) in ((False, "relu"), (True, "gelu_new"))

    def prepare(self, changed: Mapping[str, Tensor]) -> T5Weights:
        """Weights of every layer; `changed` are those with an adapter, by full name."""

        def weight(name: str) -> Tensor:
            return self._fold(name, changed[name]) if name in changed else self._folded[name]

        def block(stack: str, number: int) -> _Block:
            start = f"{stack}.block.{number}.layer"
            last = 2 if stack == "decoder" else 1
            inner = ("wi_0", "wi_1") if self._model.config.is_gated_act else ("wi",)
            attention = [
                _Attention(
                    *(weight(f"{start}.{i}.{_ATTENTION[i]}.{part}.weight") for part in "qkvo")
                )
                for i in range(last)
            ]
            dense = f"{start}.{last}.DenseReluDense"
            return _Block(
                attention[0],
                attention[1] if last == 2 else None,
                tuple(weight(f"{dense}.{part}.weight") for part in inner),
                weight(f"{dense}.wo.weight"),
            )

        return T5Weights(
            [block("encoder", i) for i in range(self._model.config.num_layers)],
            [block("decoder", i) for i in range(self._model.config.num_decoder_layers)],
        )

    def _fold(self, name: str, weight: Tensor) -> Tensor:
        """Fold the gain of the norm before a projection into it."""
        layer, _, part = name.removesuffix(".weight").rpartition(".")
        if layer.endswith(".EncDecAttention") and part in ("k", "v"):
            return weight * self._frozen["encoder.final_layer_norm.weight"]
        if part in ("q", "k", "v", "wi", "wi_0", "wi_1"):
            return weight * self._frozen[f"{layer.rpartition('.')[0]}.layer_norm.weight"]
        return weight

    def read(self, weights: T5Weights, piece: Piece, nodes: Tensor) -> Tensor:
        """Last hidden states of distinct nodes of the decoder, (len(nodes), width).

        The encoder reads the piece's prompts, the decoder its tree of start tokens and candidates.
        """
        tree, prompts = piece.tree, piece.prompts
        assert prompts is not None
        encoded = self._encode(weights.encoder, prompts)
        x = embedding(tree.tokens, self.embeddings)
        rows, bias = tree.rows, self._relative("decoder", tree) + tree.bias
        *blocks, last = weights.decoder
        for block in blocks:
            x = self._decode(block, x, x, (rows, rows, bias), encoded, prompts)
        node_rows, (state, column) = tree.select(nodes)
        bias = bias.expand(len(rows.nodes), -1, -1, -1)[state, :, column].transpose(1, 2)
        chosen = x.index_select(0, nodes)
        x = self._decode(last, chosen, x, (node_rows, rows, bias), encoded, prompts)
        return rms_norm(x, self.epsilon) * self._gain

    def _encode(self, blocks: list[_Block], prompts: Tree) -> Tensor:
        """Normalised encoder states of the prompts' nodes, without the final gain."""
        x = embedding(prompts.tokens, self.embeddings)
        bias = self._relative("encoder", prompts)
        padding = _padding_bias(prompts.rows)
        bias = bias if padding is None else bias + padding
        for number, block in enumerate(blocks):
            rows, inputs = prompts.rows, x
            if number == 0 and tabulates(self.embeddings):
                # The input of the first layer depends on the token alone: one projection per token.
                rows, inputs = prompts.token_rows, self.embeddings
            normed = rms_norm(inputs, self.epsilon)
            x = self._attend(x, block.own, normed, normed, (rows, rows, bias))
            x = self._feed_forward(block, x)
        return rms_norm(x, self.epsilon)

    def _decode(
        self,
        block: _Block,
        x: Tensor,
        inputs: Tensor,
        layout: tuple[Rows, Rows, Tensor],
        encoded: Tensor,
        prompts: Tree,
    ) -> Tensor:
        """One decoder block for the nodes `x`, which attend to `inputs` and the prompts."""
        rows, normed = layout[0], rms_norm(inputs, self.epsilon)
        query = normed if x is inputs else rms_norm(x, self.epsilon)
        x = self._attend(x, block.own, query, normed, layout)
        assert block.cross is not None
        query = rms_norm(x, self.epsilon)
        padding = _padding_bias(prompts.rows)
        if rows.single:
            queries = self._queries_in_key_space(
                block.cross, query.index_select(0, rows.nodes[:, 0])
            )
            attended = attend_once(
                queries,
                encoded,
                encoded,
                block.cross.value,
                None if padding is None else padding[:, 0],
                prompts.rows,
            ).index_select(0, rows.owners)
            x = add_linear(x, attended, block.cross.out)
        else:
            bias = torch.zeros(1) if padding is None else padding
            x = self._attend(x, block.cross, query, encoded, (rows, prompts.rows, bias))
        return self._feed_forward(block, x)

    def _queries_in_key_space(self, weights: _Attention, x: Tensor) -> Tensor:
        """Queries (states, heads, width) for nodes instead of keys: q . (K x) = (K^T q) . x."""
        query = linear(x, weights.query).view(len(x), self.heads, -1).transpose(0, 1)
        key = weights.key.view(self.heads, -1, weights.key.shape[1])
        return torch.bmm(query, key).transpose(0, 1)

    def _attend(
        self,
        x: Tensor,
        weights: _Attention,
        query: Tensor,
        inputs: Tensor,
        layout: tuple[Rows, Rows, Tensor],
    ) -> Tensor:
        """x + attention of the nodes `query` to the nodes `inputs`."""
        queries, keys, bias = layout
        value = linear(inputs, weights.value)
        if keys.single and not torch.is_grad_enabled():
            return add_linear(x, value.index_select(0, keys.nodes[queries.states, 0]), weights.out)
        attended = attend(
            linear(query, weights.query),
            linear(inputs, weights.key),
            value,
            bias,
            queries,
            keys,
            self.heads,
        )
        return add_linear(x, attended, weights.out)

    def _feed_forward(self, block: _Block, x: Tensor) -> Tensor:
        normed = rms_norm(x, self.epsilon)
        if len(block.inner) == 2:
            inner = gated_linear(GELU_TANH, normed, *block.inner)
        else:
            inner = torch.relu(linear(normed, block.inner[0]))
        return add_linear(x, inner, block.outer)

    def _relative(self, stack: str, tree: Tree) -> Tensor:
        """Relative position bias of a tree's rows: float (states or 1, heads, length, length)."""
        positions = tree.positions[tree.rows.nodes]
        length = int(positions.max()) + 1
        bias = self._bias(stack, length)
        if stack == "encoder" or length == 1:
            return bias[None]
        pairs = positions[:, :, None] * length + positions[:, None, :]
        return embedding(pairs, bias.view(self.heads, -1).t()).permute(0, 3, 1, 2)

    def _bias(self, stack: str, length: int) -> Tensor:
        """Relative position bias of the first `length` positions: (heads, length, length)."""
        if (stack, length) not in self._biases:
            attention = getattr(self._model, stack).block[0].layer[0].SelfAttention
            with torch.no_grad():
                bias = attention.compute_bias(length, length)[0]
            self._biases[stack, length] = bias.contiguous()
        return self._biases[stack, length]


def _padding_bias(rows: Rows) -> Tensor | None:
    """Attention bias that hides padded keys, (states, 1, 1, length); None without padding."""
    if rows.filled is None:
        return None
    bias = torch.zeros(rows.filled.shape).masked_fill_(~rows.filled, float("-inf"))
    return bias[:, None, None]
