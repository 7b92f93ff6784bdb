"""Time of an operation, and FLOP and time of its matrix products alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timing import median_seconds
from magellan.fastpath.layers import HAS_ONEDNN

REPETITIONS = 5
"""Repetitions of a single product."""

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides of a factor."""

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
    """Records the matrix products in this context, including backward passes.

    calls: number of products by the layouts of their factors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[Layout, Layout]] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Record the factors of a product, and run the operation."""
        if function in _FACTORS:
            left, right = _FACTORS[function](*args)
            self.calls[_layout(left), _layout(right)] += 1
        return function(*args, **(kwargs or {}))

    @property
    def gflop(self) -> float:
        """10^9 floating point operations."""
        return sum(n * _operations(*factors) for factors, n in self.calls.items()) / 1e9

    def seconds(self) -> float:
        """Wall time of the products alone, on warm memory.

        Each pair of layouts is timed once, as a median of `REPETITIONS`.
        """
        return sum(n * _seconds(*factors) for factors, n in self.calls.items())


@dataclass(frozen=True)
class Timing:
    """Wall time of one operation, and FLOP and time of its matrix products.

    seconds: median over `repetitions`.
    gflop: 10^9 floating point operations of its products, backward included.
    alone: seconds of these products alone.
    """

    seconds: float
    repetitions: int
    gflop: float
    alone: float


def measure(operation: Callable[[], object], repetitions: int) -> Timing:
    """Record the products of one call, which also warms caches; time `repetitions` calls."""
    products = record(operation)
    seconds = median_seconds(operation, repetitions)
    return Timing(seconds, repetitions, products.gflop, products.seconds())


def record(operation: Callable[[], object]) -> Products:
    """The products of one call."""
    with Products() as products:
        operation()
    return products


def _layout(factor: Tensor) -> Layout:
    return tuple(factor.shape), factor.stride()


def _operations(left: Layout, right: Layout) -> int:
    *batch, rows, inner = left[0]
    return 2 * rows * inner * right[0][-1] * (batch[0] if batch else 1)


def _seconds(left: Layout, right: Layout) -> float:
    a, b = (torch.empty_strided(*form).fill_(0.5) for form in (left, right))
    out = torch.matmul(a, b)
    multiply = torch.bmm if a.dim() == 3 else torch.mm
    return median_seconds(lambda: multiply(a, b, out=out), REPETITIONS)
