"""How often a sampler explores: epsilon as a function of its number of updates."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ExponentialEpsilon:
    """end + (start - end) exp(-step / decay), the step counting sampler updates.

    The defaults are the released code's.
    """

    start: float = 1.0
    end: float = 0.2
    decay: float = 320.0

    def __call__(self, step: int) -> float:
        return self.end + (self.start - self.end) * math.exp(-step / self.decay)


@dataclass(frozen=True)
class ConstantEpsilon:
    """The same epsilon at every step; 1 is a sampler that only explores."""

    value: float

    def __call__(self, step: int) -> float:
        return self.value
