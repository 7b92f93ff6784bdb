"""Floating point operations of the matrix products of an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from magellan.fastpath.layers import HAS_ONEDNN

_aten, _mkldnn = torch.ops.aten, torch.ops.mkldnn
_FACTORS: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {
    _aten.mm.default: lambda a, b: (a, b),
    _aten.bmm.default: lambda a, b: (a, b),
    _aten.addmm.default: lambda _, a, b: (a, b),
    _aten.addmm_.default: lambda _, a, b: (a, b),
    _aten.baddbmm.default: lambda _, a, b: (a, b),
}
if HAS_ONEDNN:
    _FACTORS |= {
        _mkldnn._linear_pointwise.default: lambda x, weight, *_: (x, weight.t()),
        _mkldnn._linear_pointwise.binary: lambda x, _other, weight, *_: (x, weight.t()),
    }


class Products(TorchDispatchMode):
    """Counts the matrix products in this context, including backward passes.

    gflop: 10^9 floating point operations so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gflop = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Count a product, and run the operation."""
        if function in _FACTORS:
            left, right = _FACTORS[function](*args)
            self.gflop += 2 * left.numel() * right.shape[-1] / 1e9
        return function(*args, **(kwargs or {}))
