"""One process per run folder: an flock, which the kernel takes back when its owner dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from magellan.core.errors import InputError, LockedError
from magellan.jobs.log import utc_now

NAME = ".lock"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class FolderLock:
    """Holds a folder for this process, making it if need be.

    Args:
        folder: folder of a run.

    Raises:
        InputError: the folder cannot be made or written, or its filesystem has no flock.
        LockedError: another live process holds the folder; nothing in it was touched.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._made = _make_folders(folder)
        self._fresh = not os.path.lexists(self._path)
        try:
            self._descriptor = _acquire(self._path, folder)
        except InputError:
            self._remove_what_was_made()
            raise
        owner = f"process {os.getpid()} on {socket.gethostname()} since {utc_now()}\n"
        with contextlib.suppress(OSError):  # only text for a person; the lock holds without it
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner.encode(), 0)

    def release(self) -> None:
        """Let others in; the file stays."""
        os.close(self._descriptor)

    def release_without_trace(self) -> None:
        """Let others in and remove what the lock itself made, for a job that never began."""
        self._remove_what_was_made()
        self.release()

    def _remove_what_was_made(self) -> None:
        with contextlib.suppress(OSError):
            if self._fresh:
                self._path.unlink()
        _remove_folders(self._made)


@contextlib.contextmanager
def held(lock: FolderLock) -> Iterator[None]:
    """Release at the end of a block, whatever ends it."""
    try:
        yield
    finally:
        lock.release()


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and its parents; gives those that were absent, innermost first."""
    absent: list[Path] = []
    try:
        absent += itertools.takewhile(lambda place: not place.exists(), (folder, *folder.parents))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_folders(absent)
        raise InputError(f"--output: {folder} cannot be written ({error.strerror})") from error
    return absent


def _remove_folders(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _acquire(path: Path, folder: Path) -> int:
    """Descriptor of the locked file."""
    while True:
        try:
            descriptor = os.open(path, _OPEN, 0o666)
        except OSError as error:
            raise InputError(f"--output: {folder} cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise _refusal(folder, owner, error) from error
        if _is_still(descriptor, path):
            return descriptor
        os.close(descriptor)  # its last owner removed the file before it let go


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _refusal(folder: Path, owner: str, error: OSError) -> InputError | LockedError:
    if isinstance(error, BlockingIOError):
        return LockedError(
            f"--output: {folder} is in use by {owner or 'another process'}; wait until it has "
            "ended, or name another folder"
        )
    if error.errno in _UNSUPPORTED:
        return InputError(
            f"--output: the filesystem of {folder} has no file locks (flock: {error.strerror}); "
            "name a folder on another filesystem"
        )
    return InputError(f"--output: {folder} cannot be locked ({error.strerror})")
