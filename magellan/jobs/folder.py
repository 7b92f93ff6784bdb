"""The folder of a run: no name in it may lead out of it.

A folder that comes from somebody else could hold links at names that the trainer writes, truncates
or removes. The folder itself may be a link: its user names it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError
from magellan.core.files import PARTIAL
from magellan.jobs import attempts, checkpoint, export, keeping, lock, log, sinks
from magellan.training.recording import CHECKSUMS, PREDICTIONS

MANIFEST = "manifest.json"
# Written beside their place and renamed.
_WHOLE = (MANIFEST, *(f"{table}.csv" for table in COLUMNS), PREDICTIONS, CHECKSUMS)
# A folder with one of these is that of a run, whole or not.
_OWN = (MANIFEST, log.NAME, attempts.NAME, checkpoint.FIRST_VERSION)
FILES = (
    lock.NAME,
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
    for inner in (folder / checkpoint.FOLDER, folder / sinks.FOLDER):
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
