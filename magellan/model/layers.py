"""What can be asked of a model's repeated layers: to be computed twice, or to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

COMPILER = "inductor"
SHAPES = 64
"""Programs that PyTorch may compile of one layer: adapters, with and without gradients, lengths."""


def repeated_layers(stack: nn.Module) -> list[nn.Module]:
    """The layers of an encoder or a decoder: its first list of modules; none where it has none."""
    lists = (each for each in stack.children() if isinstance(each, nn.ModuleList))
    return list(next(lists, ()))


def recomputed(layers: Iterable[nn.Module]) -> None:
    """Let each layer keep its input only, and compute the rest again for the gradients.

    The same operations on the same numbers, so the gradients are the same to the last bit.
    """
    for layer in layers:
        layer.forward = _twice(layer.forward)


def _twice(forward: Callable[..., Any]) -> Callable[..., Any]:
    def forward_twice(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        # Models are in evaluation mode: nothing is drawn, so no generator has to be put back.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return forward_twice


def compiled(layers: Iterable[nn.Module]) -> None:
    """Let PyTorch compile each layer when it is first called."""
    torch._dynamo.config.recompile_limit = SHAPES
    for layer in layers:
        layer.compile(backend=COMPILER)
