"""Floating point operations of the matrix products of an operation."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from magellan.fastpath.layers import HAS_ONEDNN

_aten, _mkldnn = torch.ops.aten, torch.ops.mkldnn
_LEFT: dict[Any, int] = {
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.addmm_.default: 1,
    _aten.baddbmm.default: 1,
}
"""Which argument is the left factor, by product."""
if HAS_ONEDNN:
    _LEFT |= dict.fromkeys((_mkldnn._linear_pointwise.default, _mkldnn._linear_pointwise.binary), 0)


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
        """Run the operation, and count it if it is a product."""
        result = function(*args, **(kwargs or {}))
        if function in _LEFT:
            self.gflop += 2 * result.numel() * args[_LEFT[function]].shape[-1] / 1e9
        return result
