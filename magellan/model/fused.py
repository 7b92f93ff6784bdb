"""Fewer and larger operations than the modules of `transformers` and `peft`, the same numbers.

A GPU waits for the processor, which starts its kernels one after another: fewer of them are faster,
whatever they compute. Results differ by rounding only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama as llama
from transformers.models.t5 import modeling_t5 as t5

from magellan.model.transformers4 import NEW

Product = Callable[[Tensor], Tensor]
"""x (batch, length, width) -> outputs of several linear layers, side by side."""


def is_fused(model: PreTrainedModel) -> bool:
    """Whether `fuse` knows the layers of this model, which then needs no autocast."""
    return NEW and model.config.model_type in ("llama", "t5")


def fuse(model: PreTrainedModel, adapted: bool) -> FusedAdapters:
    """Fuse the layers of a model in place; returns its adapters.

    In T5 and Llama norms, activations, rotations and the products of an attention layer are fused,
    in other models adapters alone. A model without adapters (`adapted`) keeps its weights apart.
    """
    adapters = FusedAdapters()
    if is_fused(model):
        multiply = adapters.product if adapted else _products
        for module in list(model.modules()):
            _fuse_module(module, multiply)
    adapters.add_single(model)
    return adapters


def _fuse_module(module: Any, multiply: Callable[[Sequence[nn.Module]], Product]) -> None:
    forward: Any = None
    if isinstance(module, t5.T5LayerNorm | llama.LlamaRMSNorm):
        forward = partial(_rms_norm, module)
    elif isinstance(module, llama.LlamaRotaryEmbedding):
        forward = partial(_rotations, module.forward)
    elif isinstance(module, llama.LlamaAttention):
        product = multiply([module.q_proj, module.k_proj, module.v_proj])
        forward = partial(_llama_attention, module, product)
    elif isinstance(module, t5.T5Attention):
        parts = [[module.q, module.k, module.v]]
        if module.is_decoder and not module.is_causal:  # of encoder states
            parts = [[module.q], [module.k, module.v]]
        forward = partial(_t5_attention, module, [multiply(part) for part in parts], {})
    if forward is not None:
        module.forward = forward
    for name, child in module.named_children():
        if isinstance(child, NewGELUActivation):
            setattr(module, name, nn.GELU(approximate="tanh"))


def _products(layers: Sequence[nn.Module]) -> Product:
    return lambda x: torch.cat([layer(x) for layer in layers], dim=-1)


def _rms_norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


def _rotations(forward: Callable[..., tuple[Tensor, Tensor]], *args: Any, **named: Any) -> Any:
    """Cosines, and sines whose first half is negative, for `_llama_attention`."""
    cosines, sines = forward(*args, **named)
    first, second = sines.chunk(2, dim=-1)
    return cosines, torch.cat([-first, second], dim=-1)


def _llama_attention(
    module: Any,
    product: Product,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    width = module.head_dim
    heads = product(hidden_states).unflatten(-1, (-1, width)).transpose(1, 2)
    keys = heads.shape[1] // (module.num_key_value_groups + 2)
    queries = keys * module.num_key_value_groups
    turned, values = heads.split([queries + keys, keys], dim=1)
    cosines, sines = (part[:, None] for part in position_embeddings)
    turned = torch.addcmul(turned * cosines, turned.roll(width // 2, -1), sines)
    query, key = turned.split([queries, keys], dim=1)
    attend = _attention(module, llama.eager_attention_forward)
    out, _ = attend(module, query, key, values, attention_mask, dropout=0.0, scaling=module.scaling)
    return module.o_proj(out.flatten(2)), None


def _t5_attention(
    module: Any,
    products: Sequence[Product],
    biases: dict[tuple[int, int, torch.dtype], Tensor],
    hidden_states: Tensor,
    mask: Tensor | None = None,
    key_value_states: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None, None]:
    """Attention whose bias contains the mask; the first layer makes it for all."""
    if len(products) == 1:
        parts = products[0](hidden_states).chunk(3, dim=-1)
    else:
        first, second = products
        assert key_value_states is not None
        parts = (first(hidden_states), *second(key_value_states).chunk(2, dim=-1))
    query, key, value = (part.unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for part in parts)
    if position_bias is None:
        position_bias = _t5_bias(module, biases, query, key, mask)
    attend = _attention(module, t5.eager_attention_forward)
    out, _ = attend(module, query, key, value, position_bias, dropout=0.0, scaling=1.0)
    return module.o(out.flatten(2)), position_bias, None


def _attention(module: Any, eager: Callable[..., Any]) -> Callable[..., Any]:
    """The implementation of attention that the model was loaded with."""
    return ALL_ATTENTION_FUNCTIONS.get_interface(module.config._attn_implementation, eager)


def _t5_bias(
    module: Any,
    biases: dict[tuple[int, int, torch.dtype], Tensor],
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
) -> Tensor | None:
    """Relative positions and mask, to be added to the scores; None: nothing is to be added."""
    rows, columns = query.shape[2], key.shape[2]
    if mask is None and module.is_causal:
        mask = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(
            ~mask, torch.finfo(query.dtype).min
        )
    if not module.has_relative_attention_bias:
        return mask
    shape = rows, columns, query.dtype
    if shape not in biases:
        with torch.no_grad():
            biases[shape] = module.compute_bias(rows, columns)
    return biases[shape] if mask is None else biases[shape] + mask


class FusedAdapters:
    """Adapted linear layers: those that read one input are one product, and so are their A.

    Attributes:
        layers: the adapted layers, a list for each product.
        values: of each product all A, (layers * r, in), then B of each layer, (out, r), in the
            format of the weights. To be set to what `prepare` returns before a pass.
    """

    def __init__(self) -> None:
        self.layers: list[list[LoraLayer]] = []
        self.values: Sequence[Sequence[Tensor]] = []

    def add_single(self, model: nn.Module) -> None:
        """Fuse every adapted linear layer that is in no product yet with its adapter."""
        known = {layer for layers in self.layers for layer in layers}
        for layer in model.modules():
            plain = type(layer) is LoraLinear and type(layer.base_layer) is nn.Linear
            if plain and layer not in known:
                layer.forward = self.product([layer])

    def product(self, layers: Sequence[nn.Module]) -> Product:
        """The outputs of linear layers, side by side; their weights move to one block of memory."""
        bases: list[Any] = [getattr(layer, "base_layer", layer) for layer in layers]
        weight, bias = _side_by_side(bases)
        adapted, columns, start = [], [], 0
        for layer, base in zip(layers, bases, strict=True):
            if isinstance(layer, LoraLayer):
                adapted.append(layer)
                columns.append(slice(start, start + len(base.weight)))
            start += len(base.weight)
        if not adapted:
            return lambda x: functional.linear(x, weight, bias)
        number, scale = len(self.layers), next(iter(adapted[0].scaling.values()))
        self.layers.append(adapted)

        def multiply(x: Tensor) -> Tensor:
            arguments = x.to(weight.dtype), weight, bias, columns, scale, *self.values[number]
            tracked = torch.is_grad_enabled()
            return _Adapted.apply(*arguments) if tracked else _adapted(*arguments)[0]

        return multiply

    def prepare(
        self, block: Tensor, parameters: Sequence[Tensor], dtype: torch.dtype
    ) -> list[Sequence[Tensor]]:
        """`values` of an adapter.

        Args:
            block: float, the numbers of all parameters, one after another; (2, numbers) for two
                adapters, each of which reads one half of the rows, without gradients.
            parameters: A of a product's layers, then their B, product after product; then others.
            dtype: of the values.
        """
        sizes, shapes, start = [], [], 0
        for layers in self.layers:
            down, *ups = parameters[start + len(layers) - 1 : start + 2 * len(layers)]
            start += 2 * len(layers)
            shapes += [(len(layers) * len(down), -1), *(up.shape for up in ups)]
            sizes += [len(layers) * down.numel(), *(up.numel() for up in ups)]
        joined = _Joined.apply(block, dtype, *parameters)
        rest = joined.shape[-1] - sum(sizes)
        pieces = zip(joined.split([*sizes, rest], dim=-1), shapes, strict=False)
        values = iter([piece.unflatten(-1, shape) for piece, shape in pieces])
        return [list(itertools.islice(values, 1 + len(layers))) for layers in self.layers]


def _side_by_side(bases: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of linear layers as one; the layers' become views of it."""
    if len(bases) == 1:
        return bases[0].weight, bases[0].bias
    weight, bias = (
        _one_block([getattr(base, name) for base in bases]) for name in ("weight", "bias")
    )
    assert weight is not None
    return weight, bias


def _one_block(parts: Sequence[Any]) -> Tensor | None:
    """Parameters in one block of memory, of which they become views; None: there are none."""
    if parts[0] is None:
        return None
    whole = torch.cat([part.data for part in parts])
    for part, view in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = view
    return whole


class _Joined(torch.autograd.Function):
    """The parameters of an adapter, which lie in one block, as one tensor of a format."""

    @staticmethod
    def forward(ctx: Any, block: Tensor, dtype: torch.dtype, *parameters: Tensor) -> Tensor:
        ctx.dtype, ctx.shapes = block.dtype, [parameter.shape for parameter in parameters]
        return block.to(dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pieces = gradient.to(ctx.dtype).split([shape.numel() for shape in ctx.shapes])
        views = (piece.view(shape) for piece, shape in zip(pieces, ctx.shapes, strict=True))
        return None, None, *views


def _adapted(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    columns: Sequence[slice],
    scale: float,
    down: Tensor,
    *ups: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """x W^T + b, plus s x A_i^T B_i^T in the columns of each adapted layer.

    Args:
        x: (..., in), weight: (out, in), bias: (out,) or None.
        columns: of each adapted layer.
        scale: s.
        down: all A_i, (layers * r, in). ups: B_i of each, (columns, r). Those of two adapters,
            (2, ...), read one half of the rows each.

    Returns:
        the result, (..., out); x, (n, in); and x A_i^T of all layers, (n, layers * r).
    """
    flat = x.reshape(*down.shape[:-2], -1, x.shape[-1])
    result = functional.linear(flat, weight, bias)
    inner = flat @ down.mT
    add = torch.Tensor.addmm_ if down.dim() == 2 else torch.Tensor.baddbmm_
    for part, up, column in zip(inner.chunk(len(ups), dim=-1), ups, columns, strict=True):
        add(result[..., column], part, up.mT, alpha=scale)
    return result.view(*x.shape[:-1], result.shape[-1]), flat, inner


class _Adapted(torch.autograd.Function):
    """`_adapted`, with gradients of x, A and B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Any, *others: Any) -> Tensor:
        ctx.columns, ctx.scale, down, *ups = others
        result, flat, inner = _adapted(x, weight, bias, *others)
        ctx.save_for_backward(flat, inner, weight, down, *ups)
        ctx.shape = x.shape
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        flat, inner, weight, down, *ups = ctx.saved_tensors
        gradient = gradient.reshape(-1, gradient.shape[-1])
        inner_gradient, up_gradients = torch.empty_like(inner), []
        parts = zip(inner.chunk(len(ups), 1), inner_gradient.chunk(len(ups), 1), strict=True)
        for (part, part_gradient), up, column in zip(parts, ups, ctx.columns, strict=True):
            out = gradient[:, column]
            part_gradient.addmm_(out, up, beta=0, alpha=ctx.scale)
            up_gradients.append(torch.addmm(up, out.t(), part, beta=0, alpha=ctx.scale))
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = (gradient @ weight).addmm_(inner_gradient, down).view(ctx.shape)
        down_gradient = inner_gradient.t() @ flat
        return x_gradient, None, None, None, None, down_gradient, *up_gradients
