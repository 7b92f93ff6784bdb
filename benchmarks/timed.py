"""Time operations of unknown duration within a time limit, at reduced size if necessary."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_REPETITIONS = 20
MOST_GROWTH = 16
Operation = Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Duration of an operation of full size.

    seconds: scaled up if a smaller size was measured; median over `repetitions`.
    measured, total: measured and full size, such as 512 and 24,992 goals.
    first: whether the only repetition was the first of its size, with one-time costs.
    """

    seconds: float
    repetitions: int
    measured: int
    total: int
    first: bool = False

    def note(self, things: str) -> str:
        """Limitations of the measurement; empty where there are none."""
        parts = []
        if self.measured < self.total:
            parts.append(f"measured on {self.measured:,} of {self.total:,} {things}")
        if self.first:
            parts.append("first call, nothing was warm")
        return "; ".join(parts)


class Deadline:
    """A time limit that several measurements share."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left."""
        return max(self._end - self.clock(), 0.0)


def timed(
    make: Callable[[int], Operation], total: int, smallest: int, seconds: float, deadline: Deadline
) -> Timed:
    """Time an operation, at full size if the time suffices.

    The size grows while the next one is likely to take at most half of the time left; the last one
    is repeated in the rest.

    Args:
        make: size -> operation; its preparation is not timed.
        total: full size.
        smallest: first size.
        seconds: approximate limit; one call is always measured.
        deadline: its clock is used.
    """
    end = deadline.clock() + seconds
    size = min(smallest, total)
    operation = make(size)
    seconds_per_call = _time_once(operation, deadline)
    if size < total and deadline.clock() + seconds_per_call <= end:
        # The first call of all has one-time costs: on a GPU it may take ten times as long.
        seconds_per_call = _time_once(operation, deadline)
    while size < total:
        growth = (end - deadline.clock()) / 2 / max(seconds_per_call, 1e-9)
        larger = min(total, size * int(min(growth, MOST_GROWTH)))
        if larger <= size:
            break
        size, operation = larger, make(larger)
        seconds_per_call = _time_once(operation, deadline)
    times: list[float] = []
    while len(times) < MOST_REPETITIONS and deadline.clock() + seconds_per_call <= end:
        times.append(_time_once(operation, deadline))
    median = statistics.median(times or [seconds_per_call])
    return Timed(median * total / size, max(len(times), 1), size, total, first=not times)


def _time_once(operation: Operation, deadline: Deadline) -> float:
    start = deadline.clock()
    operation()
    return deadline.clock() - start
