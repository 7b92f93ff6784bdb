"""Measurements in a process of their own: peak memory, and the loop on all goals.

`benchmarks.timing.in_fresh_process` runs this module and reads one line of JSON from it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from benchmarks.timing import SEED
from magellan.worlds.little_zoo import GoalSpace


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, MB (10^6 bytes)."""
    try:
        # Unlike VmHWM, ru_maxrss starts at the size of the parent.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        kib = int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = peak // 1024 if sys.platform == "darwin" else peak
    return kib * 1024 / 1e6


def build_goals(name: str) -> dict[str, float]:
    """Draw a goal space; returns seconds and peak memory."""
    start = time.perf_counter()
    GoalSpace.named(name, SEED)
    return {"seconds": time.perf_counter() - start, "peak_mb": peak_memory_mb()}


def play_loop(name: str, rounds: int) -> dict[str, float]:
    """Start a run with `zoo-mini` and advance it; returns seconds per update and peak memory."""
    from benchmarks.models import fill_replay, make_trainer, round_seconds

    trainer = make_trainer("zoo-mini", name)
    fill_replay(trainer)
    seconds = round_seconds(trainer, rounds)
    return {"update_seconds": seconds, "peak_mb": peak_memory_mb()}


def main(arguments: list[str]) -> None:
    """Run one task and print its figures as JSON."""
    task, name, *rest = arguments
    figures = build_goals(name) if task == "goals" else play_loop(name, int(rest[0]))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
