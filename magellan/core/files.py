"""Atomic writes of files and tables."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from magellan.core.errors import StorageError

PARTIAL = ".part"  # suffix of a file being written
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def write_table(path: Path, columns: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> None:
    """Write one table as CSV, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    write_atomically(path, text.getvalue().encode())


def _cell(value: Any) -> Any:
    """Format floats with six significant digits, and NaN as an empty cell."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return value


def new_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there.

    Raises:
        StorageError: it cannot be made, or is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old or the new content, even after a power failure.

    Raises:
        StorageError: full disk, read-only folder or the like; the old content is intact.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        descriptor = os.open(partial, _WRITE, 0o666)
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise cannot_write(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, after a newline if a kill truncated the last line.

    Raises:
        StorageError: the file cannot be written, or is a symbolic link.
    """
    try:
        descriptor = os.open(path, _APPEND, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            truncated = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            content = f"{chr(10) if truncated else ''}{line}\n".encode()
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network filesystems cannot sync a folder; the rename has still been done.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> StorageError:
    """Return the error for a file that could not be written."""
    return StorageError(f"{path} cannot be written ({error.strerror or error})")
