"""The Llama pass as one compiled function, forward and backward (`llama.cpp`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from magellan.fastpath.llama import LlamaPass
from magellan.fastpath.reading import FastPass, Piece

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WIDEST = 512
"""Largest width that fits the inner caches; above, PyTorch's products are faster."""
_PARTS = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)


Change = tuple[Tensor, Tensor, float]
"""A low-rank change of a weight: A (r, in), B (out, r) and their factor; it is factor * B A."""


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "width", "heads", "keys", "head", "inner")),
        ("epsilon", ctypes.c_double),
    )


class _Tree(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("nodes", "states", "length", "wanted_count")),
        ("shift", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "rows", "owners", "wanted")),
        *((name, ctypes.c_void_p) for name in ("filled", "visible")),
        *((name, ctypes.c_void_p) for name in ("embeddings", "cosines", "sines")),
    )


class _Projection(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "a", "b")),
        *((name, ctypes.c_int64) for name in ("rank", "a_at", "b_at")),
        ("scaling", ctypes.c_double),
    )


@dataclass(frozen=True)
class CompiledWeights:
    """The weights merged with an adapter, and the adapter.

    flat: the merged weights, in the order of the compiled code.
    projections: addresses of all weights and their changes.
    parameters: a and b of every change, in the order of their gradients.
    """

    flat: Tensor
    projections: Any
    parameters: tuple[Tensor, ...]


class CompiledLlama(FastPass):
    """`LlamaPass` in compiled code, for small models on one core.

    Unlike `LlamaPass` it merges the adapters itself, and prompts may share nodes in training too.
    """

    own_backward = True

    def __init__(self, model: PreTrainedModel, library: ctypes.CDLL) -> None:
        super().__init__()
        config = model.config
        self._library = library
        self._library.llama_weights.restype = ctypes.c_int64
        self._shape = _Shape(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.intermediate_size,
            config.rms_norm_eps,
        )
        self._frozen = {name: weight.detach() for name, weight in model.named_parameters()}
        self._embeddings = model.get_input_embeddings().weight.detach()
        self._gain = model.model.norm.weight.detach()
        self._frequencies: Tensor = model.model.rotary_emb.inv_freq
        self._cosines = self._sines = torch.zeros(0, 0)
        layers = [f"model.layers.{layer}" for layer in range(config.num_hidden_layers)]
        self._names = [f"{layer}.{part}.weight" for layer in layers for part in _PARTS]
        gains = [
            self._frozen[f"{layer}.{norm}_layernorm.weight"].data_ptr()
            for layer in layers
            for norm in ("input", "post_attention")
        ]
        self._gains = (ctypes.c_void_p * len(gains))(*gains)

    @staticmethod
    def fits(model: PreTrainedModel) -> bool:
        """Whether this class supports the model and is likely faster."""
        config = model.config
        return (
            LlamaPass.fits(model)
            and config.hidden_size <= WIDEST
            and config.head_dim % 2 == 0
            and config.num_attention_heads % config.num_key_value_heads == 0
            and all(weight.dtype == torch.float32 for weight in model.parameters())
            and all(weight.is_contiguous() for weight in model.parameters())
        )

    def prepare(self, changed: Mapping[str, Change]) -> CompiledWeights:
        """Weights of every layer, merged with an adapter: changes by full name of the weight."""
        parameters: list[Tensor] = []
        projections = (_Projection * len(self._names))()
        offset = 0
        for name, projection in zip(self._names, projections, strict=True):
            projection.weight = self._frozen[name].data_ptr()
            if name not in changed:
                continue
            a, b, projection.scaling = changed[name]
            parameters += [a, b]
            projection.a, projection.b, projection.rank = a.data_ptr(), b.data_ptr(), len(a)
            projection.a_at, projection.b_at = offset, offset + a.numel()
            offset += a.numel() + b.numel()
        flat = torch.empty(self._library.llama_weights(ctypes.byref(self._shape)))
        self._run("llama_prepare", projections, self._gains, self._gain, flat)
        return CompiledWeights(flat, projections, tuple(parameters))

    def read(self, weights: CompiledWeights, piece: Piece, nodes: Tensor) -> Tensor:
        """Last hidden states of distinct nodes, (len(nodes), width)."""
        if torch.is_grad_enabled():
            return _Read.apply(self, weights, piece, nodes, *weights.parameters)
        return self.forward(weights, self._tree(piece, nodes), keep=False)[0]

    def forward(self, weights: CompiledWeights, tree: _Tree, keep: bool) -> tuple[Tensor, Tensor]:
        """Last hidden states, and the activations that the backward pass needs."""
        activations, scratch = self._buffers(tree, keep)
        hidden = torch.empty(tree.wanted_count, self._shape.width)
        self._run(
            "llama_forward",
            ctypes.byref(tree),
            weights.flat,
            activations,
            int(keep),
            scratch,
            hidden,
        )
        return hidden, activations

    def backward(
        self, weights: CompiledWeights, tree: _Tree, activations: Tensor, gradient: Tensor
    ) -> list[Tensor]:
        """Gradients of the parameters from the gradient of the last hidden states."""
        scratch = self._buffers(tree, True)[1]
        sizes = [parameter.numel() for parameter in weights.parameters]
        flat = torch.empty(sum(sizes))
        self._run(
            "llama_backward",
            ctypes.byref(tree),
            weights.flat,
            activations,
            gradient,
            scratch,
            weights.projections,
            self._gains,
            flat,
        )
        parts = zip(flat.split(sizes), weights.parameters, strict=True)
        return [part.view_as(parameter) for part, parameter in parts]

    def _buffers(self, tree: _Tree, keep: bool) -> tuple[Tensor, Tensor]:
        """Uninitialised memory for activations and scratch data."""
        sizes = (ctypes.c_int64 * 2)()
        self._run("llama_sizes", ctypes.byref(tree), int(keep), sizes)
        return torch.empty(sizes[0]), torch.empty(sizes[1])

    def _tree(self, piece: Piece, nodes: Tensor) -> _Tree:
        """Addresses in a piece's tree, valid while `piece` and `nodes` exist."""
        tree = piece.tree
        if tree.length > len(self._cosines):
            angles = torch.arange(tree.length)[:, None] * self._frequencies
            self._cosines, self._sines = angles.cos(), angles.sin()
        rows, visible = tree.rows, tree.visible
        states, length = rows.nodes.shape
        return _Tree(
            len(tree),
            states,
            length,
            len(nodes),
            length * length if len(visible) > 1 else 0,
            tree.tokens.data_ptr(),
            tree.positions.data_ptr(),
            rows.nodes.data_ptr(),
            rows.owners.data_ptr(),
            nodes.data_ptr(),
            None if rows.filled is None else rows.filled.data_ptr(),
            visible.data_ptr(),
            self._embeddings.data_ptr(),
            self._cosines.data_ptr(),
            self._sines.data_ptr(),
        )

    def _run(self, name: str, *arguments: Any) -> None:
        pointers = [
            ctypes.c_void_p(value.data_ptr()) if isinstance(value, Tensor) else value
            for value in arguments
        ]
        if getattr(self._library, name)(ctypes.byref(self._shape), *pointers):
            raise MemoryError


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        reader: CompiledLlama,
        weights: CompiledWeights,
        piece: Piece,
        nodes: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        tree = reader._tree(piece, nodes)
        hidden, ctx.activations = reader.forward(weights, tree, keep=True)
        ctx.save_for_backward(*parameters)  # autograd checks that none changes before the backward
        ctx.reader, ctx.weights, ctx.piece, ctx.nodes = reader, weights, piece, nodes
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        tree = ctx.reader._tree(ctx.piece, ctx.nodes)
        gradients = ctx.reader.backward(ctx.weights, tree, ctx.activations, gradient.contiguous())
        return None, None, None, None, *gradients
