"""Layers on nodes: attention over rows, and elementwise parts with a cheaper backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from magellan.fastpath.trie import Rows

FEW_WORDS = 1024
"""Vocabularies up to this size have their first layer's projections tabulated."""


class _Layout(NamedTuple):
    """What `attend` is told besides queries, keys and values."""

    bias: Tensor
    queries: Rows
    keys: Rows
    heads: int


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    queries: Rows,
    keys: Rows,
    heads: int,
) -> Tensor:
    """Softmax attention of nodes, head by head; the queries come scaled.

    Args:
        query: float (q, heads * d), in the numbering of `queries`.
        key, value: float (k, heads * d), in the numbering of `keys`.
        bias: float, broadcast to (states, heads, places of queries, places of keys); -inf hides.
        queries, keys: where the nodes stand.

    Returns:
        float (q, heads * d).
    """
    layout = _Layout(bias, queries, keys, heads)
    if not torch.is_grad_enabled():
        return _attended(query, key, value, layout)[0]
    return _Attention.apply(query, key, value, layout)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: _Layout) -> Tensor:
        mixed, kept = _attended(query, key, value, layout)
        ctx.save_for_backward(*kept)
        ctx.layout = layout
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        asks, has, holds, weights = ctx.saved_tensors
        _, queries, keys, heads = ctx.layout
        needs_query, needs_key, needs_value = ctx.needs_input_grad[:3]
        out = queries.lay_out(gradient, heads)
        if queries.filled is not None:
            states, width = queries.filled.shape
            out.view(states, heads, width, -1).mul_(queries.filled[:, None, :, None])
        query = key = value = None
        if needs_value:
            value = keys.pick_up(torch.bmm(weights.transpose(1, 2), out), heads)
        if needs_query or needs_key:
            scores = torch.bmm(out, holds.transpose(1, 2))
            scores = torch._softmax_backward_data(scores, weights, -1, torch.float32)
            if needs_query:
                query = queries.pick_up(torch.bmm(scores, has), heads)
            if needs_key:
                key = keys.pick_up(torch.bmm(scores.transpose(1, 2), asks), heads)
        return query, key, value, None


def _attended(
    query: Tensor, key: Tensor, value: Tensor, layout: _Layout
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What `attend` gives, and queries, keys, values and weights as laid out."""
    bias, queries, keys, heads = layout
    asks = queries.lay_out(query, heads)
    has = keys.lay_out(key, heads)
    holds = keys.lay_out(value, heads)
    states, width = queries.nodes.shape
    scores = torch.bmm(asks, has.transpose(1, 2))
    scores.view(states, heads, width, -1).add_(bias)
    weights = torch.softmax(scores, dim=-1)
    return queries.pick_up(torch.bmm(weights, holds), heads), (asks, has, holds, weights)


def rms_norm(x: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) over the last dimension; the gain is in the next weights."""
    if not torch.is_grad_enabled():
        return x * _norm_scale(x, epsilon)
    return _RMSNorm.apply(x, epsilon)


def _norm_scale(x: Tensor, epsilon: float) -> Tensor:
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return square.div_(x.shape[-1]).add_(epsilon).rsqrt_()


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        scale = _norm_scale(x, epsilon)
        result = x * scale
        ctx.save_for_backward(result, scale)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        result, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, result).div_(result.shape[-1]).unsqueeze_(-1)
        return torch.addcmul(gradient, result, along, value=-1.0).mul_(scale), None


@dataclass(frozen=True)
class Activation:
    """An elementwise function.

    forward: the function.
    backward: (gradient, input) to the input's gradient.
    inside: its name and options inside a product of oneDNN; None where `forward` is as quick.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    inside: tuple[str, list[float], str] | None = None


SILU = Activation(functional.silu, torch.ops.aten.silu_backward)
# flan-T5's `gelu_new`
GELU_TANH = Activation(
    partial(functional.gelu, approximate="tanh"),
    partial(torch.ops.aten.gelu_backward, approximate="tanh"),
    ("gelu", [], "tanh"),
)
# No public interface: other versions of PyTorch may lack it.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def gated(activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
    """activation(gate) * up."""
    if not torch.is_grad_enabled():
        return activation.forward(gate).mul_(up)
    return _Gated.apply(activation, gate, up)


def gated_linear(activation: Activation, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """activation(x G^T) * (x U^T), for weights G and U of shape (d, width).

    Without gradients the function and the multiplication are done inside the products, if oneDNN
    is there and has the function: the sums are then changed before they leave the registers.
    """
    if activation.inside is None or not HAS_ONEDNN or torch.is_grad_enabled():
        return gated(activation, functional.linear(x, gate), functional.linear(x, up))
    product = torch.ops.mkldnn._linear_pointwise
    opened = product(x, gate, None, *activation.inside)
    return product(x, opened, up, None, "mul")


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
        open_ = activation.forward(gate)
        ctx.save_for_backward(gate, up, open_)
        ctx.activation = activation
        return open_ * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        gate, up, open_ = ctx.saved_tensors
        to_up = open_.mul_(gradient)
        return None, ctx.activation.backward(gradient.mul_(up), gate), to_up


def add_linear(x: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """x + inputs W^T, the sum taken inside the product; without gradients in the memory of x."""
    if not torch.is_grad_enabled():
        return x.addmm_(inputs, weight.t())
    return torch.addmm(x, inputs, weight.t())


def attend_once(
    asks: Tensor,
    keys: Tensor,
    values: Tensor,
    to_value: Tensor,
    bias: Tensor | None,
    rows: Rows,
) -> Tensor:
    """Attention with one query per state; the value projection is applied to the mean it takes.

    sum_j p_j (V x_j) = V sum_j p_j x_j, so no node's value is written out.

    Args:
        asks: float (states, heads, width of keys), each head's query in the space of the keys.
        keys, values: float (n, width), nodes; the same tensor or two.
        to_value: float (heads * d, width of values), the value projection V.
        bias: float (states, 1, length), -inf hides; None hides nothing.
        rows: where the nodes stand.

    Returns:
        float (states, heads * d).
    """
    states, heads = asks.shape[:2]
    seen = _in_rows(keys, rows)
    scores = torch.bmm(asks, seen.transpose(1, 2))
    weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
    held = seen if values is keys else _in_rows(values, rows)
    mean = torch.bmm(weights, held).transpose(0, 1)  # (heads, states, width)
    mixed = torch.bmm(mean, to_value.view(heads, -1, to_value.shape[1]).transpose(1, 2))
    return mixed.transpose(0, 1).reshape(states, -1)


def _in_rows(nodes: Tensor, rows: Rows) -> Tensor:
    """Nodes (n, width) in rows, (states, length, width)."""
    states, length = rows.nodes.shape
    if rows.filled is None and len(nodes) == states * length:
        return nodes.view(states, length, -1)
    return _InRows.apply(nodes, rows)


class _InRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return rows.lay_out(nodes, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.rows.pick_up(gradient, 1), None
