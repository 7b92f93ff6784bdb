"""Heads on the hidden states, and how an optimizer moves them and the adapters."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Adam

from magellan.fastpath.layers import HAS_ONEDNN
from magellan.model.devices import CPU
from magellan.model.packing import PackedBatch

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone


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


Kept = TypeVar("Kept")


class Part(NamedTuple):
    """Some states of a batch.

    states: these.
    rows: int64 (n,), where they stand in the batch; None: they are the whole batch.
    share: of the batch, so that means over parts add up to the mean over the batch.
    """

    states: PackedBatch
    rows: Tensor | None
    share: float

    def of(self, values: Tensor) -> Tensor:
        """Values of the batch, (batch,), for these states: (n,)."""
        return values if self.rows is None else values[self.rows]

    def weigh(self, mean: Tensor) -> Tensor:
        """What a mean over these states adds to that over the batch."""
        return mean if self.rows is None else mean * self.share


def parts_of(backbone: Backbone, states: PackedBatch) -> list[Part]:
    """A batch in parts of `backend.micro_batch` states, the longest with the longest.

    The whole batch where that is 0, and where a written-out pass reads, which has pieces of its
    own.
    """
    size = backbone.micro_batch
    if backbone.reader is not None or not 0 < size < len(states):
        return [Part(states, None, 1.0)]
    return [
        Part(some, backbone.tensor(rows), len(some) / len(states))
        for rows, some in states.parts(size)
    ]


def descend(
    backbone: Backbone,
    optimizer: Adam,
    states: PackedBatch,
    loss_of: Callable[[Part], tuple[Tensor, Kept]],
    largest_norm: float = 0.0,
) -> list[Kept]:
    """Move an optimizer's parameters once, along the gradient of the mean loss of a batch.

    Args:
        backbone: whose micro-batches are taken.
        optimizer: of the parameters.
        states: the batch.
        loss_of: mean loss of a part's states, and what is to be kept of them.
        largest_norm: gradients are scaled down to this norm; 0 is no limit.

    Returns:
        what is kept of each part.
    """
    optimizer.zero_grad()
    kept = []
    for part in parts_of(backbone, states):
        loss, keep = loss_of(part)
        part.weigh(loss).backward()
        kept.append(keep)
    if largest_norm > 0:
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], largest_norm)
    optimizer.step()
    return kept


def adam(parameters: Iterable[Tensor], learning_rate: float) -> Adam:
    """An optimizer that moves all parameters in one sweep; one without gradient rests."""
    return Adam(list(parameters), learning_rate, fused=True)


def state_of(optimizer: Adam) -> dict[str, dict[str, Tensor]]:
    """Moments and number of steps of each parameter that ever moved, by its number."""
    return {str(number): dict(values) for number, values in optimizer.state_dict()["state"].items()}


@torch.no_grad()
def load_state(optimizer: Adam, saved: Mapping[str, Any]) -> None:
    """Put back copies of what `state_of` gave."""
    optimizer.state.clear()
    parameters = optimizer.param_groups[0]["params"]
    for number, values in saved.items():
        parameter = parameters[int(number)]
        empty = torch.zeros_like(parameter, requires_grad=False)
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device).copy_(values["step"]),
            "exp_avg": empty.clone().copy_(values["exp_avg"]),
            "exp_avg_sq": empty.copy_(values["exp_avg_sq"]),
        }
