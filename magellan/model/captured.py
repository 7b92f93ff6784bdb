"""Passes of a model as CUDA graphs, one per shape (`backend.capture`).

A graph starts all kernels of a pass by one call of the processor, for which a GPU otherwise waits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from magellan.model.fused import FusedAdapters

HOW: dict[str, Any] = {"mode": "reduce-overhead", "dynamic": False, "isolate_recompiles": True}
"""Arguments of `torch.compile`: on a GPU this mode captures graphs."""
ROWS = 32
"""Batches are padded to a multiple of this: the next states of an update vary in number."""
SHAPES = 64
"""At most so many shapes are compiled, each when it comes for the second time."""


def last_states(stack: nn.Module, inputs: dict[str, Any]) -> Tensor:
    """Last hidden states of an encoder or a decoder, (batch, length, width)."""
    return stack(**inputs).last_hidden_state


class Captured:
    """`last_states`, compiled for each shape.

    Args:
        fused: adapters of the stacks, whose values are inputs of the graphs: they may change.
    """

    def __init__(self, fused: FusedAdapters) -> None:
        self._fused = fused
        self._passes: dict[Any, Any] = {}

    def __call__(self, stack: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Like `last_states`; rows of `inputs` are those of its `input_ids`."""
        rows, tracked = len(inputs["input_ids"]), torch.is_grad_enabled()
        inputs = {name: _padded(value, rows) for name, value in inputs.items()}
        shapes = tuple(value.shape for value in inputs.values() if isinstance(value, Tensor))
        key = stack, tracked, shapes
        if key not in self._passes:
            if len(self._passes) < SHAPES:
                self._passes[key] = None
            return last_states(stack, inputs)[:rows]
        if self._passes[key] is None:
            self._passes[key] = torch.compile(last_states, **HOW)
        if not tracked:  # values may come from an update, and would need gradients
            values = self._fused.values
            self._fused.values = [[value.detach() for value in group] for group in values]
        # The next pass overwrites the output of a graph.
        return self._passes[key](stack, inputs)[:rows].clone()


def _padded(value: Any, rows: int) -> Any:
    """An input with this many rows, and copies of the first after them: zeros could give NaN."""
    extra = -rows % ROWS
    if extra == 0 or not isinstance(value, Tensor) or len(value) != rows:
        return value
    return torch.cat([value, value[:1].expand(extra, *value.shape[1:])])
