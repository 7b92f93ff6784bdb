"""Stopwatch, speed of a plain matrix product, and measurements in new processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

Clock = Callable[[], float]
SEED = 0


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
    """GFLOP/s of a square float32 product on one thread, measured repeatedly during a benchmark.

    The best median counts: interference by other processes does not make a core slower.
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
        """Add a measurement."""
        seconds = median_seconds(self._operation, self.REPETITIONS, self._clock)
        self.rates.append(2 * self.SIZE**3 / 1e9 / seconds)

    @property
    def best(self) -> float:
        """Largest median so far, GFLOP/s."""
        return max(self.rates)


def in_fresh_process(task: str, *arguments: str) -> dict[str, float]:
    """Run `goals NAME` or `loop NAME ROUNDS` in a new Python process; returns its figures."""
    command = [sys.executable, "-m", "benchmarks.fresh", task, *arguments]
    root = Path(__file__).resolve().parents[1]
    finished = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])
