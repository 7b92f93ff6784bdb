"""Small networks on top of the backbone's hidden states."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from magellan.fastpath.layers import HAS_ONEDNN
from magellan.model.devices import CPU


def mlp(
    width: int,
    hidden: Sequence[int],
    activation: type[nn.Module],
    generator: torch.Generator,
    normalised: bool = False,
) -> nn.Sequential:
    """width -> hidden ... -> 1 with PyTorch's default initial values drawn from `generator`.

    normalised: a layer norm stands before each activation.
    """
    sizes = [width, *hidden]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        norm = [nn.LayerNorm(outputs)] if normalised else []
        layers += [_linear(inputs, outputs, generator), *norm, activation()]
    return nn.Sequential(*layers, _linear(sizes[-1], 1, generator))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def value(head: nn.Module, features: Tensor) -> Tensor:
    """Apply a head to features (..., width), giving (...)."""
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    if HAS_ONEDNN and features.device == CPU and not torch.is_grad_enabled():
        # A sixth quicker than `linear` on an AMD processor.
        product = torch.ops.mkldnn._linear_pointwise
        for layer in layers[:-1]:
            if isinstance(layer, nn.Linear):
                features = product(features, layer.weight, layer.bias, "none", [], "")
            else:
                features = layer(features)
        return layers[-1](features).squeeze(-1)
    return head(features).squeeze(-1)


@torch.no_grad()
def blend(source: nn.Module, target: nn.Module, step: float = 1.0) -> None:
    """Move every parameter of `target` towards `source`: t <- (1 - step) t + step s."""
    for new, old in zip(source.parameters(), target.parameters(), strict=True):
        old.lerp_(new, step)


def frozen_copy(head: nn.Module) -> nn.Module:
    """A copy that no optimizer moves."""
    return copy.deepcopy(head).requires_grad_(False)
