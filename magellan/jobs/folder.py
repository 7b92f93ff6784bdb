"""The folder of a run: one process at a time works in it, and no name in it leads out of it.

A folder that comes from somebody else could hold links at names that the trainer writes, truncates
or removes. The folder itself may be a link: its user names it. The lock is an flock, which the
kernel takes back when its owner dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, LockedError
from magellan.core.files import PARTIAL
from magellan.jobs import attempts, checkpoint, export, keeping, log, progress
from magellan.training.recording import CHECKSUMS, PREDICTIONS

MANIFEST, LOCK = "manifest.json", ".lock"
# Written beside their place and renamed.
_WHOLE = (MANIFEST, *(f"{table}.csv" for table in COLUMNS), PREDICTIONS, CHECKSUMS)
# A folder with one of these is that of a run, whole or not.
_OWN = (MANIFEST, log.NAME, attempts.NAME)
FILES = (
    LOCK,
    *_OWN[1:],
    *_WHOLE,
    *(f"{name}{PARTIAL}" for name in _WHOLE),
)
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def check_folder(folder: Path, argument: str = "--output") -> None:
    """Look at every name that a run reads or writes, before anything is read or written.

    argument: that names the folder, for errors.

    Raises:
        InputError: one is a link or something else than a file of the run, or cannot be looked at.
    """
    try:
        for path, wanted in _names(folder):
            kind = _kind(path)
            if kind not in (None, wanted):
                raise InputError(
                    f"{argument}: {path} is {kind}; allowed at this place in the folder of a run: "
                    f"{wanted} of its own, or nothing; remove it, or name another folder"
                )
    except OSError as error:
        raise InputError(f"{argument}: {folder} cannot be read ({error.strerror})") from error


def check_no_run(folder: Path) -> None:
    """Refuse the folder of a run as a place for something else.

    Raises:
        InputError: names what a run has left there, or the folder cannot be read.
    """
    try:
        kept = (checkpoint.FOLDER, *map(str, keeping.points(folder)))
        found = [name for name in (*_OWN, *kept) if (folder / name).exists()]
    except OSError as error:
        raise InputError(f"--output: {folder} cannot be read ({error.strerror})") from error
    if found:
        raise InputError(
            f"--output: {folder} is not allowed: it holds a run ({found[0]}); allowed: another "
            "folder"
        )


def _names(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every name with what may be there; what is in a folder once that has been looked at."""
    yield from ((folder / name, "a file") for name in FILES)
    for inner in (folder / checkpoint.FOLDER, folder / progress.TENSORBOARD):
        yield inner, "a folder"
        if inner.is_dir():
            yield from ((inner / name, "a file") for name in sorted(os.listdir(inner)))
    for name in (export.FOLDER, export.FOLDER + PARTIAL):
        yield from _agent(folder / name)
    for kept in keeping.folders(folder):
        yield kept, "a folder"
        yield kept / checkpoint.FOLDER, "a folder"


def _agent(folder: Path) -> Iterator[tuple[Path, str]]:
    """Names of an exported agent: files, and a folder for each adapter with files."""
    yield folder, "a folder"
    if not folder.is_dir():
        return
    for name in sorted(os.listdir(folder)):
        inner = folder / name
        yield inner, "a folder" if name in export.ADAPTERS else "a file"
        if name in export.ADAPTERS:
            yield from ((inner / file, "a file") for file in sorted(os.listdir(inner)))


def _kind(path: Path) -> str | None:
    """What lies at a path, links not followed; None for nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((kind for is_one, kind in _KINDS if is_one(mode)), "a device")


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
        self._path = folder / LOCK
        self._made = _make_folders(folder)
        self._fresh = not os.path.lexists(self._path)
        try:
            self._descriptor = _acquire(self._path, folder)
        except InputError:
            self._remove_what_was_made()
            raise
        owner = f"process {os.getpid()} on {socket.gethostname()} since {log.utc_now()}\n"
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
