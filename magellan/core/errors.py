"""Errors that a user can mend. Each ends a command with one line and its own exit status."""

from __future__ import annotations

import difflib
import errno
import re
import reprlib
from collections.abc import Iterable
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 160
_SHORT.maxlong = 40
_SHORT.maxlevel = 3
# Controls (C0, DEL, C1), line and paragraph separators, marks that turn text around, and halves of
# characters, which no terminal and no UTF-8 file takes.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """A text on one line that moves no cursor and hides nothing: each control is shown escaped.

    Anything from a file, from another host or from a library goes through this before a person
    sees it: an escape sequence could colour, move or rewrite what a terminal shows.
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class InputError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed."""

    exit_status = 2
    label = "error"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message.rstrip("\n")))


def shown(value: Any) -> str:
    """A value as it stands in an error: its repr, cut where it would fill the screen."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4,300 digits
        return f"{type(value).__name__} too long to show"


def refused(key: str, value: Any, allowed: str) -> InputError:
    """The error of a value that is not allowed."""
    return InputError(f"{key}: {shown(value)} is not allowed; allowed: {allowed}")


def meant(name: Any, known: Iterable[str]) -> str:
    """End of an error about an unknown name: the known one that it is nearly; else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {near[0]}?" if near else ""


class JobError(RuntimeError):
    """A training job that could not go on; what it saved before is intact."""

    exit_status = 1
    label = "error"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


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


class ServersDiffer(JobError):
    """Servers that hold the same weights no longer say the same."""

    exit_status = 76


def out_of_memory(error: BaseException) -> OutOfMemoryError:
    """An error of a library that memory ran out, as one line; see `is_out_of_memory`."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return OutOfMemoryError(
        f"out of memory ({said[:160]}); it needs more memory, or a smaller model, or bfloat16"
    )


_NO_MEMORY = (
    *("allocate memory", "bad_alloc", "out of memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),  # of NVIDIA's libraries
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error of Python or of a library, or one behind it, says that memory ran out."""
    if error is None or isinstance(error, InputError | JobError):
        return False
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    if isinstance(error, Exception) and any(words in str(error) for words in _NO_MEMORY):
        return True
    return is_out_of_memory(error.__cause__ or error.__context__)
