"""Seconds and peak memory of building a goal space, each time in a new process."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.effort import Effort
from benchmarks.fresh import accepted, in_fresh_process
from benchmarks.rows import Row, Skipped


def goal_rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Two rows for each goal space: build time, without imports, and peak memory, with them."""
    for name in effort.goal_spaces:
        if not accepted(name):
            yield Skipped(f"goal space {name}", "this version has no goal space of that name")
            continue
        n = effort.goal_repetitions
        figures = [in_fresh_process("goals", name) for _ in range(n)]
        seconds, peak = (
            statistics.median(figure[key] for figure in figures) for key in ("seconds", "peak_mb")
        )
        yield Row("goal space: build", seconds, "s", n, size=name)
        yield Row("goal space: peak memory of a process", peak, "MB", n, size=name)
