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
from magellan.jobs.log import append_line, utc_now

NAME = "attempts.jsonl"
KILLED = "killed"
FINAL = {error.exit_status: error for error in (InputError, NotFiniteError)}
"""Errors that the same call meets again, by their exit status."""
# What the manifest says of every attempt.
MADE_WITH = ("code_version", "versions", "modules", "uses", "passes", "device", "dtype")
"""What the numbers of an attempt depend on, and may change between attempts."""
LOGGED = (
    *("attempt", *MADE_WITH, "cpu", "matmul_gflop_per_second"),
    *("started", "resumed_from", "reason"),
)
# No number of an attempt, of a process, of seconds or of MiB is larger.
LARGEST = 10**9


class Attempts:
    """The attempts of one run; the file is only ever appended to.

    Args:
        folder: folder of the run; the file may also tell of runs with other configurations.
        identity: configuration of this run.

    Raises:
        StorageError: from `begin` and `end`, when the file cannot be written.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._path = folder / NAME
        self._identity = identity
        self._begun = time.monotonic()
        self._number = 0

    def begin(self, resumed_from: str | None, origin: Mapping[str, Any] | None = None) -> int:
        """Note the start of this attempt, with code and libraries; gives its number, from 1."""
        self._begun = time.monotonic()
        self._number = _next({row["attempt"] for row in self.read()})
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
        """Note why this attempt ended, and its exit status."""
        self._append(
            ended=utc_now(),
            reason=reason,
            status=status,
            seconds=round(time.monotonic() - self._begun, 1),
            peak_memory_mb=peak_memory_mb(),
        )

    def _append(self, **values: Any) -> None:
        append_line(self._path, json.dumps({"attempt": self._number, **values}))

    def read(self) -> list[dict[str, Any]]:
        """One row per attempt, oldest first: its start, and `reason` `killed` if it has no end.

        Lines that are cut short, and values that no trainer writes, are left out; never raises.
        """
        attempts: dict[int, dict[str, Any]] = {}
        for event in self._events():
            row = attempts.setdefault(event["attempt"], {"reason": KILLED})
            row.update(event)
        return list(attempts.values())

    def _events(self) -> list[dict[str, Any]]:
        try:
            if not self._path.is_file():
                return []  # nor anything that has no end
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        events = (_event(line) for line in text.splitlines())
        return [event for event in events if "attempt" in event]

    def summary(self, reason: str = "complete") -> dict[str, Any]:
        """For the manifest: this run's attempts, how many resumed, why each ended.

        Args:
            reason: why the present attempt ends.
        """
        rows = [row for row in self.read() if row.get("identity") == self._identity]
        earlier = [row for row in rows if row["attempt"] != self._number]
        ends = [{**row, "reason": reason} for row in rows if row["attempt"] == self._number]
        peaks = [row["peak_memory_mb"] for row in earlier if "peak_memory_mb" in row]
        return {
            "started": rows[0].get("started") if rows else None,
            "restarts": sum(row.get("resumed_from") is not None for row in rows),
            "attempts": len(rows),
            "stop_reasons": [*(row["reason"] for row in earlier), reason],
            "attempt_log": [{key: row.get(key) for key in LOGGED} for row in (*earlier, *ends)],
            "peak_memory_mb": max([peak_memory_mb(), *peaks]),
        }


def check_worth_trying(folder: Path, identity: str) -> None:
    """Raise again what the last attempt at a run ended with, if another one would end with it."""
    rows = Attempts(folder, identity).read()
    last = rows[-1] if rows else {}
    error = FINAL.get(last.get("status", 0))
    if error is not None and last.get("identity") == identity:
        raise error(last["reason"].removeprefix(f"{error.label}: "))


def _next(taken: set[int]) -> int:
    """The number after the largest; the first free one where nobody can count further."""
    largest = max(taken, default=0)
    return largest + 1 if largest < LARGEST else next(n for n in count(1) if n not in taken)


def _event(line: str) -> dict[str, Any]:
    """A line of the file without what does not belong there; empty where nothing of it does."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}  # cut short by a kill or a full disk, or not written by a trainer
    if not isinstance(event, dict):
        return {}
    return {key: value for key, value in event.items() if _fits(key, value)}


def made_with(state: Any) -> list[dict[str, Any]]:
    """What the attempts behind a checkpoint had of `MADE_WITH`; each change is one more.

    state: of the checkpoint, or what a run started from; earlier versions do not say it.
    """
    found = state.get("made_with") if isinstance(state, Mapping) else None
    rows = [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []
    return [{key: row[key] for key in MADE_WITH if _fits(key, row.get(key))} for row in rows]


def ancestry(state: Any) -> list[dict[str, Any]]:
    """The same, what the run started from first."""
    begun = state.get("started_from") if isinstance(state, Mapping) else None
    return [*made_with(begun), *made_with(state)]


def _fits(key: str, value: Any) -> bool:
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
    """Kind of machine, without its name."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
