"""The folder of a run: only one process works in it, and it contains no links.

A folder from somebody else could hold links at names that the trainer writes, truncates or
removes. The folder itself may be a link, as the user names it. The lock is an flock, which the
kernel releases when its owner dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, LockedError
from magellan.core.files import PARTIAL, reading
from magellan.jobs import checkpoint, display, export, log, provenance
from magellan.model import chat

MANIFEST, LOCK = "manifest.json", ".lock"
# Written atomically, by way of a partial file.
_ATOMIC = (MANIFEST, *(f"{table}.csv" for table in COLUMNS))
# A folder with one of these is that of a run, complete or not.
_RUN_FILES = (MANIFEST, log.NAME, provenance.NAME)
FILES = (LOCK, *_RUN_FILES[1:], chat.NAME, chat.JUDGED, *_ATOMIC)
FILES += tuple(f"{name}{PARTIAL}" for name in _ATOMIC)
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
    with reading(f"{argument}: {folder}"):
        for path, allowed in _expected_paths(folder):
            kind = _kind(path)
            if kind not in (None, allowed):
                raise InputError(
                    f"{argument}: {path} is {kind}; allowed at this place in the folder of a run: "
                    f"{allowed} of its own, or nothing; remove it, or name another folder"
                )


def check_no_run(folder: Path) -> None:
    """Refuse the folder of a run as an output folder.

    Raises:
        InputError: it holds a file of a run (named in the error), or cannot be read.
    """
    with reading(f"--output: {folder}"):
        kept = (checkpoint.FOLDER, *map(str, checkpoint.points(folder)))
        names = [name for name in (*_RUN_FILES, *kept) if (folder / name).exists()]
    if names:
        place = f"--output: {folder} is not allowed"
        raise InputError(f"{place}: it holds a run ({names[0]}); allowed: another folder")


def _expected_paths(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each path of a run with its allowed kind; a folder comes before its contents."""
    yield from ((folder / name, "a file") for name in FILES)
    for name in (checkpoint.FOLDER, display.TENSORBOARD):
        yield from _with_files(folder / name)
    for name in (export.FOLDER, export.FOLDER + PARTIAL):
        yield from _with_files(folder / name, export.ADAPTERS)
    for kept in checkpoint.kept_folders(folder):
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


_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class FolderLock:
    """Locks a run's folder for this process, creating it if absent.

    Raises:
        InputError: the folder cannot be created or written, or its filesystem has no flock.
        LockedError: another live process holds the folder; nothing in it was changed.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        self._created = [p for p in (path, folder, *folder.parents) if not os.path.lexists(p)]
        # Not at once: a job that never began removes the file before it releases the lock.
        self._lock = FileLock(path, 0.2, fallback_to_soft=False, on_acquired=_write_owner)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise LockedError(
                f"--output: {folder} is in use by {_read_owner(path)}; wait until it has ended, or "
                "name another folder"
            ) from error
        except OSError as error:
            self._remove_created()
            if error.errno in _UNSUPPORTED:
                raise InputError(
                    f"--output: the filesystem of {folder} has no file locks (flock: "
                    f"{error.strerror}); name a folder on another filesystem"
                ) from error
            raise InputError(f"--output: {folder} cannot be written ({error.strerror})") from error

    def close(self) -> None:
        """Release the lock; its file stays."""
        self._lock.release()

    def release_without_trace(self) -> None:
        """Release the lock and remove what it created, for a job that never began."""
        self._remove_created()
        self.close()

    def _remove_created(self) -> None:
        for path in self._created:
            with contextlib.suppress(OSError):
                path.unlink() if path.name == LOCK else path.rmdir()


def _write_owner(descriptor: int) -> None:
    """Name this process in the lock file, for errors only."""
    owner = f"process {os.getpid()} on {socket.gethostname()} since {log.utc_now()}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)


def _read_owner(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes()[:200].decode(errors="replace").strip() or "another process"
    return "another process"
