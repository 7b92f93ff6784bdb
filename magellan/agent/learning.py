"""Heads on the hidden states, micro-batches and Adam: what agents that learn have in common."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam

from magellan.model.devices import CPU, HAS_ONEDNN
from magellan.model.packing import PackedBatch

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone


def mlp(
    width: int, hidden: Sequence[int], activation: type[nn.Module], generator: torch.Generator
) -> nn.Sequential:
    """width -> hidden ... -> 1 with PyTorch's default initial values drawn from `generator`."""
    widths = [width, *hidden]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [_linear(inputs, outputs, generator), activation()]
    return nn.Sequential(*layers, _linear(widths[-1], 1, generator))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def apply_head(head: nn.Module, features: Tensor) -> Tensor:
    """Apply a head to features (..., width); returns (...)."""
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    if HAS_ONEDNN and features.device == CPU and not torch.is_grad_enabled():
        # A sixth faster than `linear` on an AMD processor.
        linear = torch.ops.mkldnn._linear_pointwise
        for layer in layers[:-1]:
            if isinstance(layer, nn.Linear):
                features = linear(features, layer.weight, layer.bias, "none", [], "")
            else:
                features = layer(features)
        return layers[-1](features).squeeze(-1)
    return head(features).squeeze(-1)


@torch.no_grad()
def blend(source: nn.Module, target: nn.Module, step: float = 1.0) -> None:
    """Move every parameter of `target` towards `source`: t <- (1 - step) t + step s."""
    for new, parameter in zip(source.parameters(), target.parameters(), strict=True):
        parameter.lerp_(new, step)


def frozen_copy(head: nn.Module) -> nn.Module:
    """Copy of a head that needs no gradients."""
    return copy.deepcopy(head).requires_grad_(False)


class MicroBatch(NamedTuple):
    """States of a batch that go through the model together.

    rows: int64 (n,), indices of these states in the batch; None: the whole batch.
    share: fraction of the batch, so that weighted means add up to the mean over the batch.
    """

    states: PackedBatch
    rows: Tensor | None
    share: float

    def select(self, values: Tensor) -> Tensor:
        """Entries (n,) of a batch's values, (batch,), that belong to these states."""
        return values if self.rows is None else values[self.rows]

    def weigh(self, mean: Tensor) -> Tensor:
        """Contribution of a mean over these states to the mean over the batch."""
        return mean if self.rows is None else mean * self.share


def micro_batches(backbone: Backbone, states: PackedBatch) -> list[MicroBatch]:
    """Split a batch into micro-batches of `backend.micro_batch` states of similar length.

    One micro-batch if that is 0, or if a written-out pass, which splits by itself, reads the batch.
    """
    size = backbone.micro_batch
    if backbone.fast_pass is not None or not 0 < size < len(states):
        return [MicroBatch(states, None, 1.0)]
    return [
        MicroBatch(part, backbone.tensor(rows), len(part) / len(states))
        for rows, part in states.parts(size)
    ]


def adam(parameters: Iterable[Tensor], learning_rate: float) -> Adam:
    """PyTorch's Adam with its default constants, fused."""
    return Adam(list(parameters), learning_rate, fused=True)


def adam_state(optimizer: Adam) -> dict[str, dict[str, Tensor]]:
    """Moments and step count of each parameter that was ever updated, by its index."""
    return {str(index): values for index, values in optimizer.state_dict()["state"].items()}


def load_adam(optimizer: Adam, state: Mapping[str, Any]) -> None:
    """Restore a copy of what `adam_state` returned."""
    copies = {
        int(index): {name: value.clone() for name, value in values.items()}
        for index, values in state.items()
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": copies})
