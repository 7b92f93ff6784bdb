"""Atomic writes of files and tables."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from magellan.core.errors import InputError, StorageError

PARTIAL = ".part"  # suffix of a file being written
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


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
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path) -> None:
    """Raise InputError unless this folder, of `--output`, is one to write into, or can be made."""
    with reading(f"--output: {folder}"):
        place = next(path for path in (folder, *folder.parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise InputError(f"--output: {folder} cannot be written; allowed: a folder to write into")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError: this path could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror or error})") from error


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn an OSError into an InputError: what is named could not be read."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what} cannot be read ({error.strerror})") from error


def refuse_link(path: Path) -> None:
    """Raise OSError if a path has become a symbolic link, since the attempt began."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link")


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old or the new content, even after a power failure.

    Raises:
        StorageError: full disk, read-only folder or the like; the old content is intact.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with writing(path):
            with _opened(partial, _WRITE) as descriptor:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[os.write(descriptor, remaining) :]
                os.fsync(descriptor)
            os.replace(partial, path)
            sync_folder(path.parent)
    except StorageError:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, after a newline if a kill truncated the last line.

    Raises:
        StorageError: the file cannot be written, or is a symbolic link.
    """
    with writing(path), _opened(path, _APPEND) as descriptor:
        size = os.fstat(descriptor).st_size
        truncated = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        content = f"{chr(10) if truncated else ''}{line}\n".encode()
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    with _opened(folder, os.O_RDONLY) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network filesystems cannot sync a folder; the rename has still been done.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
