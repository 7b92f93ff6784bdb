"""attempts.jsonl: every start and end of a run. An attempt without an end was killed."""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from magellan.core.errors import InputError, NotFiniteError
from magellan.core.files import append_line
from magellan.jobs.log import utc_now

NAME = "attempts.jsonl"
KILLED = "killed"
FINAL = {error.exit_status: error for error in (InputError, NotFiniteError)}
"""Errors that a retry would meet again, by exit status."""
MADE_WITH = ("code_version", "versions", "tokens", "modules", "uses", "passes", "device", "dtype")
"""What an attempt's numbers depend on and may change between attempts."""
# What the manifest reports for every attempt.
LOGGED = (
    *("attempt", *MADE_WITH, "cpu", "matmul_gflop_per_second"),
    *("started", "resumed_from", "reason"),
)
LARGEST = 10**9  # upper bound of attempt numbers, process ids, seconds and MiB


class Attempts:
    """The attempts of one run, in an append-only file.

    Args:
        folder: the run's folder; its file may also list attempts with other configurations.
        identity: identity of this run.

    Raises:
        StorageError: from `begin` and `end`, if the file cannot be written.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._path = folder / NAME
        self._identity = identity
        self._start_time = time.monotonic()
        self._number = 0

    def begin(self, resumed_from: str | None, origin: Mapping[str, Any] | None = None) -> int:
        """Record the start of this attempt, with code and libraries; return its number, from 1."""
        self._start_time = time.monotonic()
        self._number = _next_number({row["attempt"] for row in self.read()})
        self._append(
            started=utc_now(),
            host=socket.gethostname(),
            machine=host_description(),
            pid=os.getpid(),
            identity=self._identity,
            resumed_from=resumed_from,
            **(origin or {}),
        )
        return self._number

    def end(self, reason: str, status: int = 0) -> None:
        """Record why this attempt ended, and its exit status."""
        self._append(
            ended=utc_now(),
            reason=reason,
            status=status,
            seconds=round(time.monotonic() - self._start_time, 1),
            peak_memory_mb=peak_memory_mb(),
        )

    def _append(self, **values: Any) -> None:
        append_line(self._path, json.dumps({"attempt": self._number, **values}))

    def read(self) -> list[dict[str, Any]]:
        """Return one row per attempt, oldest first; `reason` is `killed` if it has no end.

        Skips truncated lines and values that no trainer writes; never raises.
        """
        try:
            # Not from a device that never ends.
            text = self._path.read_text("utf-8", "replace") if self._path.is_file() else ""
        except OSError:
            text = ""
        attempts: dict[int, dict[str, Any]] = {}
        for event in map(_parse_event, text.splitlines()):
            if "attempt" in event:
                attempts.setdefault(event["attempt"], {"reason": KILLED}).update(event)
        return list(attempts.values())

    def summary(self) -> dict[str, Any]:
        """Summarise this run's attempts for the manifest, when the current one completes it."""
        rows = [row for row in self.read() if row.get("identity") == self._identity]
        earlier = [row for row in rows if row["attempt"] != self._number]
        current = [{**row, "reason": "complete"} for row in rows if row["attempt"] == self._number]
        peaks = [row["peak_memory_mb"] for row in earlier if "peak_memory_mb" in row]
        return {
            "started": rows[0].get("started") if rows else None,
            "restarts": sum(row.get("resumed_from") is not None for row in rows),
            "attempts": len(rows),
            "stop_reasons": [*(row["reason"] for row in earlier), "complete"],
            "attempt_log": [{key: row.get(key) for key in LOGGED} for row in (*earlier, *current)],
            "peak_memory_mb": max([peak_memory_mb(), *peaks]),
        }


def check_worth_trying(folder: Path, identity: str) -> None:
    """Raise the error of a run's last attempt again if a retry would meet it too."""
    rows = Attempts(folder, identity).read()
    last = rows[-1] if rows else {}
    error = FINAL.get(last.get("status", 0))
    if error is not None and last.get("identity") == identity:
        raise error(last["reason"].removeprefix(f"{error.label}: "))


def _next_number(taken: set[int]) -> int:
    """Number after the largest; the first free one if that would exceed `LARGEST`."""
    largest = max(taken, default=0)
    return largest + 1 if largest < LARGEST else next(n for n in count(1) if n not in taken)


def _parse_event(line: str) -> dict[str, Any]:
    """Parse a line of the file, dropping invalid values; empty if the line is invalid."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}  # truncated by a kill or a full disk, or not written by a trainer
    if not isinstance(event, dict):
        return {}
    return {key: value for key, value in event.items() if _is_valid(key, value)}


def made_with(state: Any) -> list[dict[str, Any]]:
    """Return the `MADE_WITH` values of the attempts behind a checkpoint, one row per change.

    state: of a checkpoint, or a run's `started_from`; earlier versions wrote none.
    """
    rows = state.get("made_with") if isinstance(state, Mapping) else None
    rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [{key: row[key] for key in MADE_WITH if _is_valid(key, row.get(key))} for row in rows]


def ancestry(state: Any) -> list[dict[str, Any]]:
    """Return `made_with` of a state, preceded by that of the run it started from."""
    start = state.get("started_from") if isinstance(state, Mapping) else None
    return [*made_with(start), *made_with(state)]


def _is_valid(key: str, value: Any) -> bool:
    """Whether a trainer writes such a value under this key."""
    if key in ("versions", "backbone", "modules", "uses"):
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if key in ("attempt", "pid", "status", "peak_memory_mb"):
        return type(value) is int and 0 <= value <= LARGEST
    if key in ("seconds", "matmul_gflop_per_second"):
        return type(value) in (int, float) and 0 <= value <= LARGEST
    return isinstance(value, str) or (key == "resumed_from" and value is None)


def peak_memory_mb() -> int:
    """Largest resident memory of this process so far, MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def host_description() -> str:
    """Architecture, cores and system of this machine, without its name."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
