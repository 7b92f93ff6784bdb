"""run.log: the events of a run, in plain text."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from magellan.core.errors import printable
from magellan.core.files import append_line

NAME = "run.log"


class RunLog:
    """One line per event: UTC time, seconds since this attempt began, text. Append-only.

    Raises:
        StorageError: from `write` and `warn`, if the file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._start_time = time.monotonic()

    def write(self, text: str) -> None:
        """Append one line."""
        seconds = time.monotonic() - self._start_time
        append_line(self._path, f"{utc_now()} +{seconds:.1f}s {printable(text)}")

    def warn(self, text: str) -> None:
        """Append a warning and print it to standard error."""
        show(f"warning: {text}")
        self.write(f"warning: {text}")


def show(text: str) -> None:
    """Print one line to standard error; a closed stream must not end a run."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(text), file=sys.stderr, flush=True)


def utc_now() -> str:
    """Return the wall-clock time to the second, for display only."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
