"""Checks that losses and weights are finite, before anything is saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from magellan.core.errors import NotFiniteError


def check_losses(update: int, losses: Mapping[str, float]) -> None:
    """Check that all losses are finite.

    Raises:
        NotFiniteError: names the update, the loss and its value.
    """
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise NotFiniteError(f"update {update}: {name} is {loss}; {ADVICE}")


def check_weights(update: int, state: Mapping[str, Any]) -> None:
    """Check that all arrays of a state (weights, optimizer moments) are finite.

    Raises:
        NotFiniteError: names the update and the array.
    """
    for name, array in _arrays(state, ""):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NotFiniteError(f"update {update}: {name} holds NaN or infinity; {ADVICE}")


ADVICE = "nothing was saved since; lower agent.learning_rate or set agent.gradient_clip"


def _arrays(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _arrays(inner, f"{name}.{key}" if name else str(key))
