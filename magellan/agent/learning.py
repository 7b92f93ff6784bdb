"""Heads on the hidden states, and how an optimizer moves them and the adapters."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

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


def optimizer_step(
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
        torch.nn.utils.clip_grad_norm_(optimizer.parameters, largest_norm)
    optimizer.step()
    return kept


FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """`torch.optim.Adam(parameters, learning_rate, fused=True)`, bit by bit, with less around it.

    A parameter without gradient rests, as there. Small models spend as long on what surrounds the
    one sweep over memory as on the sweep.
    """

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self._rate = learning_rate
        self._moments = [
            [torch.zeros_like(each, requires_grad=False) for each in self.parameters]
            for _ in MOMENTS
        ]
        self._counts = torch.zeros(len(self.parameters), device=self.parameters[0].device)
        self._steps = list(self._counts.unbind())

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        lists = [self.parameters, *self._moments, self._steps]
        if len(gradients) == len(self.parameters):
            self._counts += 1
        else:
            moves = [number for number, each in enumerate(self.parameters) if each.grad is not None]
            lists = [[values[number] for number in moves] for values in lists]
            for count in lists[-1]:
                count += 1
        if not gradients:
            return
        parameters, first, second, steps = lists
        torch._fused_adam_(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            lr=self._rate,
            beta1=FIRST,
            beta2=SECOND,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Moments and number of steps of each parameter that ever moved, by its number."""
        return {
            str(number): {"step": step, **dict(zip(MOMENTS, moments, strict=True))}
            for number, (step, *moments) in enumerate(zip(self._steps, *self._moments, strict=True))
            if step > 0
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` gave."""
        self._counts.zero_()
        for values in self._moments:
            torch._foreach_zero_(values)
        for key, saved in state.items():
            number = int(key)
            self._steps[number].copy_(saved["step"])
            for name, values in zip(MOMENTS, self._moments, strict=True):
                values[number].copy_(saved[name])
