"""Adam, and its state as plain arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

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
