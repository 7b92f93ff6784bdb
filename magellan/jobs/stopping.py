"""When a job must stop: on a signal, or before its time limit."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from magellan.core.errors import InputError, not_allowed

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
# Slurm sets the id for every job, but the end of its time (seconds since the epoch) not for all.
END_TIME, JOB = "SLURM_JOB_END_TIME", "SLURM_JOB_ID"
SQUEUE_SECONDS = 20.0
MAX_DIGITS = 12  # of END_TIME


class Stopper:
    """Remembers the first signal and watches the time limit.

    As a context manager it handles `SIGNALS`, except those that were ignored at process start
    (nohup, a background job). A second SIGINT raises KeyboardInterrupt at once.

    limit: seconds from now until the job is killed; infinite without a limit.
    margin: seconds to reserve before that.
    """

    def __init__(
        self,
        limit: float = math.inf,
        margin: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._margin = clock, margin
        self._deadline = clock() + limit
        self._longest: dict[str, float] = {}
        self._signal: signal.Signals | None = None
        self._interrupts = 0
        self._handlers: dict[signal.Signals, Any] = {}

    def record_duration(self, what: str, seconds: float) -> None:
        """Record the duration of a round or a save: the longest of each is reserved."""
        self._longest[what] = max(seconds, self._longest.get(what, 0.0))

    @property
    def reason(self) -> str | None:
        """Why the job must stop now; None while it may continue."""
        if self._signal is not None:
            return f"on {self._signal.name}"
        left = self._deadline - self._clock()
        needed = self._margin + sum(self._longest.values())
        if left < needed:
            return f"before the time limit ({left:.0f} s left, {needed:.0f} s reserved)"
        return None

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _catch(self, number: int, _: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts == 2:
            raise KeyboardInterrupt
        self._signal = self._signal or signal.Signals(number)


def seconds_granted(
    stop_after: float | None,
    environment: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> float:
    """Return the seconds until the job is killed: the smaller of `--stop-after` and Slurm's limit.

    Args:
        stop_after: minutes, or None for no limit.
        environment: has SLURM_JOB_END_TIME, or SLURM_JOB_ID to ask squeue about.
        now: wall clock, read once.

    Raises:
        InputError: a limit is not a positive number.
    """
    limits = [math.inf]
    if stop_after is not None:
        if not (math.isfinite(stop_after) and stop_after > 0):
            raise InputError(f"--stop-after: {stop_after:g} is not allowed; allowed: minutes > 0")
        limits.append(60.0 * stop_after)
    end = environment.get(END_TIME)
    if end:
        if not (end.isdecimal() and len(end) <= MAX_DIGITS):
            raise not_allowed(END_TIME, end, "seconds since 1970")
        limits.append(int(end) - now())
    elif environment.get(JOB):
        limits.append(_ask_squeue(environment[JOB]))
    return min(limits)


def _ask_squeue(job: str) -> float:
    """Seconds left to a Slurm job; infinite if unknown."""
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SQUEUE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return math.inf
    return seconds_left(answer.stdout)


def seconds_left(text: str) -> float:
    """Convert Slurm's days-hours:minutes:seconds to seconds; infinite for UNLIMITED, for one."""
    match = re.fullmatch(r"(?:(?:(\d{1,9})-)?(\d{1,9}):)?(\d{1,9}):(\d{1,9})", text.strip())
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
