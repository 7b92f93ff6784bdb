"""Adam, and its state as plain arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch


def adam(parameters: Iterable[torch.Tensor], learning_rate: float) -> torch.optim.Adam:
    """Adam with its usual constants, all parameters moved in one sweep over memory."""
    return torch.optim.Adam(parameters, learning_rate, fused=True)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Adam's moments by parameter number, without anything that needs pickling."""
    return {str(number): dict(values) for number, values in optimizer.state_dict()["state"].items()}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Put back what `optimizer_state` gave; step sizes stay those of the configuration."""
    moments = {
        int(number): {name: moment.clone() for name, moment in values.items()}
        for number, values in state.items()
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
