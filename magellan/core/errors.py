"""Errors that a user can fix. Each ends a command with one line and its exit status."""

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
# Controls (C0, DEL, C1), line and paragraph separators, bidirectional marks, and surrogates, which
# cannot be encoded in UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text as one line with control characters escaped.

    For text from files, other hosts or libraries: escape sequences could alter a terminal's output.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class InputError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed."""

    exit_status = 2
    label = "error"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message.rstrip("\n")))


def shown(value: Any) -> str:
    """Return the repr of a value for an error, abbreviated if long."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4,300 digits
        return f"{type(value).__name__} too long to show"


def not_allowed(key: str, value: Any, allowed: str, why: str = "") -> InputError:
    """Return the error for a value that is not allowed; `why`: the words after that, if any."""
    return InputError(f"{key}: {shown(value)} is not allowed{why}; allowed: {allowed}")


def unknown(key: str, name: Any, allowed: Iterable[str]) -> InputError:
    """Return the error for a name that is none of those allowed."""
    names = ", ".join(allowed)
    return InputError(
        f"{key}: {shown(name)} is unknown; allowed: {names}{suggestion(name, allowed)}"
    )


def suggestion(name: Any, allowed: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the closest allowed one, if any."""
    matches = difflib.get_close_matches(name, list(allowed), n=1) if isinstance(name, str) else []
    return f"; did you mean {matches[0]}?" if matches else ""


class JobError(RuntimeError):
    """A training job failed; its saved state is intact."""

    exit_status = 1
    label = "error"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class NotFiniteError(JobError):
    """A loss or a weight became NaN or infinite."""

    exit_status = 70


class OutOfMemoryError(JobError):
    """The machine ran out of memory."""

    exit_status = 71


class LockedError(JobError):
    """Another process has locked the folder."""

    exit_status = 73


class StorageError(JobError):
    """A file could not be written: full disk, read-only folder, missing permissions."""

    exit_status = 74


class StoppedEarly(JobError):
    """The job was asked to stop or approached its time limit; its state is saved."""

    exit_status = 75
    label = "stopped"


class ServersDiffer(JobError):
    """Servers with the same weights give different results."""

    exit_status = 76


def out_of_memory(error: BaseException) -> OutOfMemoryError:
    """Convert a library's error (see `is_out_of_memory`) to one line."""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return OutOfMemoryError(
        f"out of memory ({message[:160]}); use more memory, a smaller model, or bfloat16"
    )


_NO_MEMORY = (
    *("allocate memory", "bad_alloc", "out of memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),  # of NVIDIA's libraries
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, reports that memory ran out."""
    if error is None or isinstance(error, InputError | JobError):
        return False
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    if isinstance(error, Exception) and any(words in str(error) for words in _NO_MEMORY):
        return True
    return is_out_of_memory(error.__cause__ or error.__context__)
