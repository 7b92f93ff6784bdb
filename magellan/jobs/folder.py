"""The folder of a run: only one process works in it, and it contains no links.

A folder from somebody else could hold links at names that the trainer writes, truncates or
removes. The folder itself may be a link, as the user names it. The lock is an flock, which the
kernel releases when its owner dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, LockedError
from magellan.core.files import PARTIAL
from magellan.jobs import attempts, checkpoint, export, keeping, log, progress
from magellan.model import chat

MANIFEST, LOCK = "manifest.json", ".lock"
# Written atomically, by way of a partial file.
_ATOMIC = (MANIFEST, *(f"{table}.csv" for table in COLUMNS))
# A folder with one of these is that of a run, complete or not.
_RUN_FILES = (MANIFEST, log.NAME, attempts.NAME)
FILES = (LOCK, *_RUN_FILES[1:], chat.NAME, *_ATOMIC, *(f"{name}{PARTIAL}" for name in _ATOMIC))
# By the first character that `ls -l` shows.
_KINDS = {
    "l": "a symbolic link",
    "d": "a folder",
    "-": "a file",
    "p": "a named pipe",
    "s": "a socket",
}


def check_folder(folder: Path, argument: str = "--output") -> None:
    """Check every path that a run reads or writes, before it does.

    argument: option that names the folder, for errors.

    Raises:
        InputError: a path is a link or of the wrong kind, or cannot be read.
    """
    try:
        for path, allowed in _expected_paths(folder):
            kind = _kind(path)
            if kind not in (None, allowed):
                raise InputError(
                    f"{argument}: {path} is {kind}; allowed at this place in the folder of a run: "
                    f"{allowed} of its own, or nothing; remove it, or name another folder"
                )
    except OSError as error:
        raise InputError(f"{argument}: {folder} cannot be read ({error.strerror})") from error


def check_no_run(folder: Path) -> None:
    """Refuse the folder of a run as an output folder.

    Raises:
        InputError: it holds a file of a run (named in the error), or cannot be read.
    """
    try:
        kept = (checkpoint.FOLDER, *map(str, keeping.points(folder)))
        names = [name for name in (*_RUN_FILES, *kept) if (folder / name).exists()]
    except OSError as error:
        raise InputError(f"--output: {folder} cannot be read ({error.strerror})") from error
    if names:
        raise InputError(
            f"--output: {folder} is not allowed: it holds a run ({names[0]}); allowed: another "
            "folder"
        )


def _expected_paths(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each path of a run with its allowed kind; a folder comes before its contents."""
    yield from ((folder / name, "a file") for name in FILES)
    for name in (checkpoint.FOLDER, progress.TENSORBOARD):
        yield from _with_files(folder / name)
    for name in (export.FOLDER, export.FOLDER + PARTIAL):
        yield from _with_files(folder / name, export.ADAPTERS)
    for kept in keeping.folders(folder):
        yield kept, "a folder"
        yield kept / checkpoint.FOLDER, "a folder"


def _with_files(folder: Path, inner: tuple[str, ...] = ()) -> Iterator[tuple[Path, str]]:
    """A folder and its contents: files, and folders of files with the names `inner`."""
    yield folder, "a folder"
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if name in inner:
            yield from _with_files(folder / name)
        else:
            yield folder / name, "a file"


def _kind(path: Path) -> str | None:
    """Kind of file at a path, links not followed; None if absent."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.filemode(mode)[0], "a device")


_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class FolderLock:
    """Locks a run's folder for this process, creating it if absent.

    Raises:
        InputError: the folder cannot be created or written, or its filesystem has no flock.
        LockedError: another live process holds the folder; nothing in it was changed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._created_folders = _make_folders(folder)
        self._created_lock = not os.path.lexists(self._path)
        try:
            self._descriptor = _acquire(self._path, folder)
        except InputError:
            self._remove_created()
            raise
        owner = f"process {os.getpid()} on {socket.gethostname()} since {log.utc_now()}\n"
        with contextlib.suppress(OSError):  # informative only; the lock holds without it
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner.encode(), 0)

    def close(self) -> None:
        """Release the lock; its file stays."""
        os.close(self._descriptor)

    def release_without_trace(self) -> None:
        """Release the lock and remove what it created, for a job that never began."""
        self._remove_created()
        self.close()

    def _remove_created(self) -> None:
        with contextlib.suppress(OSError):
            if self._created_lock:
                self._path.unlink()
        _remove_folders(self._created_folders)


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; return those that were absent, innermost first."""
    absent: list[Path] = []
    try:
        absent += itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents))
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
    """Lock the file and return its descriptor."""
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
            raise _lock_error(folder, owner, error) from error
        if _is_current(descriptor, path):
            return descriptor
        os.close(descriptor)  # the last owner removed the file before releasing it


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _lock_error(folder: Path, owner: str, error: OSError) -> InputError | LockedError:
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
