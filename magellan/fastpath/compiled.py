"""The Llama pass as one compiled function, forward and backward (`llama.cpp`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from magellan.fastpath.llama import LlamaPass

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magellan.model.packing import Piece

WIDEST = 512
"""Widths up to this are multiplied from the near caches; above, PyTorch's products are quicker."""
_PARTS = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)


class Change(NamedTuple):
    """A low-rank change of a weight: scaling * b a, a of shape (r, in) and b of shape (out, r)."""

    a: Tensor
    b: Tensor
    scaling: float


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
class Adapted:
    """An adapter, as the compiled code takes it; its values may move, in their place.

    projections: where all weights and their changes stand.
    parameters: a and b of every change, in the order of their gradients.
    sizes: numbers in each of them.
    """

    projections: Any
    parameters: tuple[Tensor, ...]
    sizes: list[int]


@dataclass(frozen=True)
class CompiledWeights:
    """An adapter, and the weights merged with it, in the order in which the code reads them."""

    adapted: Adapted
    flat: Tensor


class CompiledLlama:
    """What `LlamaPass` computes, for small models on one core, in compiled code.

    Unlike it, it merges the adapters itself, and prompts may share nodes in training, too.
    """

    def __init__(self, model: PreTrainedModel, library: ctypes.CDLL) -> None:
        config = model.config
        self._call = library
        self._call.llama_weights.restype = ctypes.c_int64
        self._shape = _Shape(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.intermediate_size,
            config.rms_norm_eps,
        )
        self._frozen = {name: each.detach() for name, each in model.named_parameters()}
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
        """Whether this class computes what the model does, and is likely the quicker one."""
        config = model.config
        return (
            LlamaPass.fits(model)
            and config.hidden_size <= WIDEST
            and config.head_dim % 2 == 0
            and config.num_attention_heads % config.num_key_value_heads == 0
            and all(each.dtype == torch.float32 for each in model.parameters())
            and all(each.is_contiguous() for each in model.parameters())
        )

    def adapt(self, changes: Mapping[str, Change]) -> Adapted:
        """Take an adapter; `changes` by the full name of the weight."""
        parameters: list[Tensor] = []
        projections = (_Projection * len(self._names))()
        at = 0
        for name, projection in zip(self._names, projections, strict=True):
            projection.weight = self._frozen[name].data_ptr()
            if name not in changes:
                continue
            low = changes[name]
            parameters += [low.a, low.b]
            projection.a, projection.b = low.a.data_ptr(), low.b.data_ptr()
            projection.rank, projection.scaling = len(low.a), low.scaling
            projection.a_at, projection.b_at = at, at + low.a.numel()
            at += low.a.numel() + low.b.numel()
        return Adapted(projections, tuple(parameters), [each.numel() for each in parameters])

    def prepare(self, adapted: Adapted) -> CompiledWeights:
        """Weights of every layer, with an adapter as it is now."""
        flat = torch.empty(self._call.llama_weights(ctypes.byref(self._shape)))
        self._run("llama_prepare", adapted.projections, self._gains, self._gain, flat)
        return CompiledWeights(adapted, flat)

    def read(self, weights: CompiledWeights, piece: Piece, wanted: Tensor) -> Tensor:
        """Last hidden states of the nodes `wanted`, all different: (len(wanted), width)."""
        if torch.is_grad_enabled():
            return _Read.apply(self, weights, piece, wanted, *weights.adapted.parameters)
        return self.forward(weights, self._tree(piece, wanted), keep=False)[0]

    def forward(self, weights: CompiledWeights, tree: _Tree, keep: bool) -> tuple[Tensor, Tensor]:
        """Last hidden states, and what a backward needs."""
        kept, space = self._space(tree, keep)
        hidden = torch.empty(tree.wanted_count, self._shape.width)
        self._run("llama_forward", ctypes.byref(tree), weights.flat, kept, int(keep), space, hidden)
        return hidden, kept

    def backward(
        self, weights: CompiledWeights, tree: _Tree, kept: Tensor, gradient: Tensor
    ) -> list[Tensor]:
        """Gradients of the parameters, from that of the last hidden states."""
        space = self._space(tree, True)[1]
        adapted = weights.adapted
        found = torch.empty(sum(adapted.sizes))
        self._run(
            "llama_backward",
            ctypes.byref(tree),
            weights.flat,
            kept,
            gradient,
            space,
            adapted.projections,
            self._gains,
            found,
        )
        parts = zip(found.split(adapted.sizes), adapted.parameters, strict=True)
        return [part.view_as(parameter) for part, parameter in parts]

    def _space(self, tree: _Tree, keep: bool) -> tuple[Tensor, Tensor]:
        found = (ctypes.c_int64 * 2)()
        self._run("llama_sizes", ctypes.byref(tree), int(keep), found)
        return torch.empty(found[0]), torch.empty(found[1])

    def _tree(self, piece: Piece, wanted: Tensor) -> _Tree:
        """Addresses in a piece's tree: good as long as piece and wanted are."""
        tree = piece.tree
        self._turn(tree.length)
        rows, visible = tree.rows, tree.visible
        states, length = rows.nodes.shape
        return _Tree(
            len(tree),
            states,
            length,
            len(wanted),
            length * length if len(visible) > 1 else 0,
            tree.tokens.data_ptr(),
            tree.positions.data_ptr(),
            rows.nodes.data_ptr(),
            rows.owners.data_ptr(),
            wanted.data_ptr(),
            None if rows.filled is None else rows.filled.data_ptr(),
            visible.data_ptr(),
            self._embeddings.data_ptr(),
            self._cosines.data_ptr(),
            self._sines.data_ptr(),
        )

    def _turn(self, length: int) -> None:
        """Tables of the rotation for all positions below `length`."""
        if length > len(self._cosines):
            angles = torch.arange(length)[:, None] * self._frequencies
            self._cosines, self._sines = angles.cos(), angles.sin()

    def _run(self, name: str, *arguments: Any) -> None:
        given = [
            ctypes.c_void_p(each.data_ptr()) if isinstance(each, Tensor) else each
            for each in arguments
        ]
        if getattr(self._call, name)(ctypes.byref(self._shape), *given):
            raise MemoryError


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        reader: CompiledLlama,
        weights: CompiledWeights,
        piece: Piece,
        wanted: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        tree = reader._tree(piece, wanted)
        hidden, ctx.kept = reader.forward(weights, tree, keep=True)
        ctx.save_for_backward(*parameters)  # that none has moved when the backward reads them
        ctx.reader, ctx.weights, ctx.piece, ctx.wanted = reader, weights, piece, wanted
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        tree = ctx.reader._tree(ctx.piece, ctx.wanted)
        found = ctx.reader.backward(ctx.weights, tree, ctx.kept, gradient.contiguous())
        return None, None, None, None, *found
