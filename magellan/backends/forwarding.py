"""A backend in front of another one: what one of your own begins with if it changes little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from magellan.backends.base import CURRENT, Backend, Which
from magellan.core.codec import Packed, PackedState


class Forwarding(Backend):
    """Hands every call on to another backend, all of them by way of `forward`.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner, self.codec = inner, inner.codec
        self.passes, self.device, self.dtype = inner.passes, inner.device, inner.dtype

    def forward(self, method: str, *values: Any) -> Any:
        """What the other one's method of this name gives for these values."""
        return getattr(self.inner, method)(*values)

    def start(self, name: str, settings: Any, seed: int) -> None:
        self.forward("start", name, settings, seed)
        self.memory = self.inner.memory  # what a batch needs is measured here

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        found: np.ndarray = self.forward("probabilities", states)
        return found

    def look(self, states: list[PackedState]) -> dict[str, float]:
        told: dict[str, float] = self.forward("look", states)
        return told

    def values(self, states: list[PackedState]) -> np.ndarray:
        found: np.ndarray = self.forward("values", states)
        return found

    def hold(self, prompts: Packed) -> int:
        return int(self.forward("hold", prompts))

    def release(self, held: int) -> None:
        self.forward("release", held)

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        found: np.ndarray = self.forward("competence", prompts, which)
        return found

    def representation(self, prompts: Packed) -> np.ndarray:
        found: np.ndarray = self.forward("representation", prompts)
        return found

    def update(self, name: str, data: Any) -> dict[str, float]:
        found: dict[str, float] = self.forward("update", name, data)
        return found

    def snapshot(self) -> int:
        return int(self.forward("snapshot"))

    def restore(self, snapshot: int) -> None:
        self.forward("restore", snapshot)

    def discard(self, snapshot: int) -> None:
        self.forward("discard", snapshot)

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self.forward("state_dict")
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.forward("load_state_dict", state)

    def close(self) -> None:
        self.forward("close")
