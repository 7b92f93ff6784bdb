"""Layers on nodes: attention over rows, and elementwise functions with a cheaper backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from magellan.fastpath.trie import Rows

FEW_WORDS = 1024
"""Largest vocabulary whose projections in the first layer are tabulated."""


def tabulates(embeddings: Tensor) -> bool:
    """Whether a pass tabulates the first layer's projections of these words."""
    return len(embeddings) <= FEW_WORDS and not torch.is_grad_enabled()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    queries: Rows,
    keys: Rows,
    heads: int,
) -> Tensor:
    """Multi-head softmax attention of nodes; queries are already scaled.

    Args:
        query: float (q, heads * d), in the numbering of `queries`.
        key, value: float (k, heads * d), in the numbering of `keys`.
        bias: float, broadcast to (states, heads, places of queries, places of keys); -inf hides.
        queries, keys: layout of the nodes.

    Returns:
        float (q, heads * d).
    """
    arguments = query, key, value, bias, queries, keys, heads
    if not torch.is_grad_enabled():
        return _attend(*arguments)[0]
    return _Attention.apply(*arguments)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *layout: Any) -> Tensor:
        output, saved = _attend(query, key, value, *layout)
        ctx.save_for_backward(*saved)
        ctx.layout = layout[1:]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q_rows, k_rows, v_rows, weights = ctx.saved_tensors
        queries, keys, heads = ctx.layout
        needs_query, needs_key, needs_value = ctx.needs_input_grad[:3]
        out = queries.lay_out(gradient, heads)
        if queries.filled is not None:
            states, width = queries.filled.shape
            out.view(states, heads, width, -1).mul_(queries.filled[:, None, :, None])
        query = key = value = None
        if needs_value:
            value = keys.pick_up(torch.bmm(weights.transpose(1, 2), out), heads)
        if needs_query or needs_key:
            scores = torch.bmm(out, v_rows.transpose(1, 2))
            scores = torch._softmax_backward_data(scores, weights, -1, torch.float32)
            if needs_query:
                query = queries.pick_up(torch.bmm(scores, k_rows), heads)
            if needs_key:
                key = keys.pick_up(torch.bmm(scores.transpose(1, 2), q_rows), heads)
        return query, key, value, None, None, None, None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, queries: Rows, keys: Rows, heads: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Result of `attend`, and queries, keys, values and weights in rows."""
    q_rows = queries.lay_out(query, heads)
    k_rows = keys.lay_out(key, heads)
    v_rows = keys.lay_out(value, heads)
    states, width = queries.nodes.shape
    scores = torch.bmm(q_rows, k_rows.transpose(1, 2))
    scores.view(states, heads, width, -1).add_(bias)
    weights = torch.softmax(scores, dim=-1)
    return queries.pick_up(torch.bmm(weights, v_rows), heads), (q_rows, k_rows, v_rows, weights)


def rms_norm(x: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) over the last dimension; the next weights contain the gain."""
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
    backward: (gradient, input) -> gradient of the input.
    fused: name and options in a fused product of oneDNN; None where `forward` is as fast.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    fused: tuple[str, list[float], str] | None = None


SILU = Activation(functional.silu, torch.ops.aten.silu_backward)
# flan-T5's `gelu_new`
GELU_TANH = Activation(
    partial(functional.gelu, approximate="tanh"),
    partial(torch.ops.aten.gelu_backward, approximate="tanh"),
    ("gelu", [], "tanh"),
)
# Not a public interface: other versions of PyTorch may lack it.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def gated(activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
    """activation(gate) * up."""
    if not torch.is_grad_enabled():
        return activation.forward(gate).mul_(up)
    return _Gated.apply(activation, gate, up)


def gated_linear(activation: Activation, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """activation(x G^T) * (x U^T), for weights G and U of shape (d, width).

    Without gradients oneDNN, if available, fuses activation and multiplication into the products.
    """
    if activation.fused is None or not HAS_ONEDNN or torch.is_grad_enabled():
        return gated(activation, functional.linear(x, gate), functional.linear(x, up))
    product = torch.ops.mkldnn._linear_pointwise
    activated = product(x, gate, None, *activation.fused)
    return product(x, activated, up, None, "mul")


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
        activated = activation.forward(gate)
        ctx.save_for_backward(gate, up, activated)
        ctx.activation = activation
        return activated * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        gate, up, activated = ctx.saved_tensors
        up_gradient = activated.mul_(gradient)
        return None, ctx.activation.backward(gradient.mul_(up), gate), up_gradient


def add_linear(x: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """x + inputs W^T in one operation; in place without gradients."""
    if not torch.is_grad_enabled():
        return x.addmm_(inputs, weight.t())
    return torch.addmm(x, inputs, weight.t())


def attend_once(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    to_value: Tensor,
    bias: Tensor | None,
    rows: Rows,
) -> Tensor:
    """Attention with one query per state; the value projection V is applied to the mean.

    sum_j p_j (V x_j) = V sum_j p_j x_j, so no node's value is computed.

    Args:
        queries: float (states, heads, width of keys), each head's query in the space of the keys.
        keys, values: float (n, width), nodes; may be the same tensor.
        to_value: float (heads * d, width of values), the value projection V.
        bias: float (states, 1, length), -inf hides; None hides nothing.
        rows: layout of the nodes.

    Returns:
        float (states, heads * d).
    """
    states, heads = queries.shape[:2]
    k_rows = _lay_out_rows(keys, rows)
    scores = torch.bmm(queries, k_rows.transpose(1, 2))
    weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
    v_rows = k_rows if values is keys else _lay_out_rows(values, rows)
    mean = torch.bmm(weights, v_rows).transpose(0, 1)  # (heads, states, width)
    output = torch.bmm(mean, to_value.view(heads, -1, to_value.shape[1]).transpose(1, 2))
    return output.transpose(0, 1).reshape(states, -1)


def _lay_out_rows(nodes: Tensor, rows: Rows) -> Tensor:
    """Lay out nodes (n, width) in rows, (states, length, width)."""
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
