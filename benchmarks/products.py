"""Matrix products of an operation, and the kernels that it would start on a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from magellan.model.devices import HAS_ONEDNN

_aten, _mkldnn = torch.ops.aten, torch.ops.mkldnn
_LEFT: dict[Any, int] = {
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.addmm_.default: 1,
    _aten.baddbmm.default: 1,
    _aten.baddbmm_.default: 1,
}
"""Which argument is the left factor, by product."""
if HAS_ONEDNN:
    _LEFT |= dict.fromkeys((_mkldnn._linear_pointwise.default, _mkldnn._linear_pointwise.binary), 0)
_NO_KERNEL = {"_unsafe_view", "_fused_sdp_choice", "_record_function_exit", "lift_fresh"}
_NO_KERNEL |= {"_record_function_enter_new", "empty", "empty_like", "empty_strided", "new_empty"}
_NO_KERNEL |= {"new_empty_strided"}
"""Calls that compute nothing, besides views."""


class Products(TorchDispatchMode):
    """Counts the calls of PyTorch in this context, including backward passes.

    A norm (`rms_norm`) is one call, as on a GPU; a CPU computes it by several, which are not
    counted.

    Attributes:
        gflop: 10^9 floating point operations of matrix products.
        calls: number of calls that start a kernel, by operation; some start several.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gflop = 0.0
        self.calls: Counter[str] = Counter()

    @property
    def kernels(self) -> int:
        """Number of calls that start a kernel."""
        return self.calls.total()

    def __enter__(self) -> Products:
        """Start to count."""
        self._norms = torch.library.Library("aten", "IMPL")
        self._norms.impl("_fused_rms_norm", _norm, "CPU")
        self._norms.impl("_fused_rms_norm_backward", _norm_backward, "CPU")
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Stop counting."""
        self._norms._destroy()
        super().__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operation, and count it."""
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if not function.is_view and name not in _NO_KERNEL:
            self.calls[name] += 1
        if function in _LEFT:
            self.gflop += 2 * result.numel() * args[_LEFT[function]].shape[-1] / 1e9
        return result


def _norm(
    x: Tensor, shape: list[int], weight: Tensor | None, epsilon: float | None
) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = (wide.square().mean(-1, keepdim=True) + (epsilon or 0.0)).rsqrt()
    result = (wide * scale).to(x.dtype)
    return result if weight is None else result * weight, scale


def _norm_backward(
    gradient: Tensor,
    x: Tensor,
    shape: list[int],
    scale: Tensor,
    weight: Tensor | None,
    mask: list[bool],
) -> tuple[Tensor, None]:
    """Gradient of x; weights are frozen."""
    normed, wide = x.float() * scale, gradient.float()
    wide = wide if weight is None else wide * weight
    along = (wide * normed).mean(-1, keepdim=True)
    return ((wide - normed * along) * scale).to(x.dtype), None
