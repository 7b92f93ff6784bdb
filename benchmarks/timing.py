"""Stopwatch, and the speed of a plain matrix product."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

Clock = Callable[[], float]


def median_seconds(
    operation: Callable[[], object], repetitions: int, clock: Clock = time.perf_counter
) -> float:
    """Median wall time of `operation` over `repetitions` calls, in seconds."""
    times = []
    for _ in range(repetitions):
        start = clock()
        operation()
        times.append(clock() - start)
    return statistics.median(times)


class MatmulRate:
    """GFLOP/s of a square float32 product on one thread, measured many times during a run.

    The best median counts: a core that was disturbed once is not a slower core.
    """

    SIZE = 512
    REPETITIONS = 11

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        import torch

        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(self.SIZE, self.SIZE, generator=generator) for _ in range(2))
        product = torch.empty(self.SIZE, self.SIZE)
        self._operation = lambda: torch.mm(left, right, out=product)
        self._clock = clock
        self.rates: list[float] = []
        self.measure()

    def measure(self) -> None:
        """Measure once more."""
        seconds = median_seconds(self._operation, self.REPETITIONS, self._clock)
        self.rates.append(2 * self.SIZE**3 / 1e9 / seconds)

    @property
    def best(self) -> float:
        """The largest median so far, GFLOP/s."""
        return max(self.rates)
