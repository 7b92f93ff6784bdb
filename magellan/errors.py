"""Errors that a user can mend. Each ends a command with one line and its own exit status."""

from __future__ import annotations

import reprlib
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 160
_SHORT.maxlong = 40
_SHORT.maxlevel = 3


class InputError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed."""

    exit_status = 2
    label = "error"

    def __init__(self, message: str) -> None:
        super().__init__("\\n".join(message.splitlines()))


def shown(value: Any) -> str:
    """A value as it stands in an error: its repr, cut where it would fill the screen."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4,300 digits
        return f"{type(value).__name__} too long to show"


class JobError(RuntimeError):
    """A training job that could not go on; what it saved before is intact."""

    exit_status = 1
    label = "error"


class NotFiniteError(JobError):
    """A loss or a weight became NaN or infinite."""

    exit_status = 70


class OutOfMemoryError(JobError):
    """The machine had no memory left for the job."""

    exit_status = 71


class LockedError(JobError):
    """Another process works in the folder."""

    exit_status = 73


class StorageError(JobError):
    """A file could not be written: full disk, read-only folder, missing rights."""

    exit_status = 74


class StoppedEarly(JobError):
    """The job was asked to stop, or its time was nearly over; its state is saved."""

    exit_status = 75
    label = "stopped"
