"""attempts.jsonl: every start and end of a run. An attempt without an end was killed."""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import time
from pathlib import Path
from typing import Any

from magellan.training.log import append_line, utc_now

NAME = "attempts.jsonl"
KILLED = "killed"


class Attempts:
    """The attempts of one run; the file is only ever appended to.

    Args:
        folder: folder of the run; the file may also tell of runs with other configurations.
        config_hash: configuration of this run.

    Raises:
        StorageError: from `begin` and `end`, when the file cannot be written.
    """

    def __init__(self, folder: Path, config_hash: str) -> None:
        self._path = folder / NAME
        self._config_hash = config_hash
        self._begun = time.monotonic()
        self._number = 0

    def begin(self, resumed_from: str | None) -> int:
        """Note the start of this attempt; gives its number, from 1."""
        self._begun = time.monotonic()
        self._number = 1 + max((row["attempt"] for row in self.read()), default=0)
        self._append(
            started=utc_now(),
            host=socket.gethostname(),
            machine=host_description(),
            pid=os.getpid(),
            config_hash=self._config_hash,
            resumed_from=resumed_from,
        )
        return self._number

    def end(self, reason: str) -> None:
        """Note why this attempt ended."""
        self._append(
            ended=utc_now(),
            reason=reason,
            seconds=round(time.monotonic() - self._begun, 1),
            peak_memory_mb=peak_memory_mb(),
        )

    def _append(self, **values: Any) -> None:
        append_line(self._path, json.dumps({"attempt": self._number, **values}))

    def read(self) -> list[dict[str, Any]]:
        """One row per attempt, oldest first: its start, and `reason` `killed` if it has no end."""
        attempts: dict[int, dict[str, Any]] = {}
        for event in self._events():
            row = attempts.setdefault(event["attempt"], {"reason": KILLED})
            row.update(event)
        return list(attempts.values())

    def _events(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        events = []
        for line in text.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # cut short by a kill or a full disk
            if isinstance(event, dict) and isinstance(event.get("attempt"), int):
                events.append(event)
        return events

    def summary(self) -> dict[str, Any]:
        """For the manifest: this run's attempts, how many resumed, why the earlier ones ended."""
        rows = [row for row in self.read() if row.get("config_hash") == self._config_hash]
        earlier = [row for row in rows if row["attempt"] != self._number]
        peaks = [row["peak_memory_mb"] for row in earlier if "peak_memory_mb" in row]
        return {
            "started": rows[0]["started"] if rows else None,
            "restarts": sum(row.get("resumed_from") is not None for row in rows),
            "attempts": len(rows),
            "stop_reasons": [row["reason"] for row in earlier],
            "peak_memory_mb": max([peak_memory_mb(), *peaks]),
        }


def peak_memory_mb() -> int:
    """Largest resident memory of this process so far, MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def host_description() -> str:
    """Kind of machine, without its name."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
