"""Times operations of unknown length within a given time: fewer of them, or smaller ones."""

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
    """How long an operation of full size takes.

    seconds: of it, in proportion where a smaller one was measured; median over `repetitions`.
    measured, total: size that was measured and the full one, such as 512 and 24,992 goals.
    first: whether the one repetition was the first of its size, with all that is made only once.
    """

    seconds: float
    repetitions: int
    measured: int
    total: int
    first: bool = False

    def said(self, things: str) -> str:
        """What has to be known of the measurement, in words; empty where all was measured."""
        parts = []
        if self.measured < self.total:
            parts.append(f"measured on {self.measured:,} of {self.total:,} {things}")
        if self.first:
            parts.append("first call, nothing was warm")
        return "; ".join(parts)


class Deadline:
    """A time that several measurements share."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self._end - self.clock(), 0.0)


def timed(
    make: Callable[[int], Operation], total: int, smallest: int, seconds: float, deadline: Deadline
) -> Timed:
    """Time an operation, at full size where the time allows it.

    Sizes grow as long as the next one is likely to end in half of the time that is left; the last
    one is repeated in the rest.

    Args:
        make: gives the operation of a size; what it needs is made there and not timed.
        total: full size.
        smallest: size to begin with.
        seconds: about how long all may take; once each is measured however long it takes.
        deadline: whose clock is used.
    """
    end = deadline.clock() + seconds
    size = min(smallest, total)
    operation = make(size)
    took = _once(operation, deadline)
    while size < total:
        growth = (end - deadline.clock()) / 2 / max(took, 1e-9)
        larger = min(total, size * int(min(growth, MOST_GROWTH)))
        if larger <= size:
            break
        size, operation = larger, make(larger)
        took = _once(operation, deadline)
    times: list[float] = []
    while len(times) < MOST_REPETITIONS and deadline.clock() + took <= end:
        times.append(_once(operation, deadline))
    median = statistics.median(times or [took])
    return Timed(median * total / size, max(len(times), 1), size, total, first=not times)


def _once(operation: Operation, deadline: Deadline) -> float:
    start = deadline.clock()
    operation()
    return deadline.clock() - start
