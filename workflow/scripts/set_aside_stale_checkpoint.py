"""Renames a run's checkpoints if they belong to another configuration: FOLDER FINGERPRINT.

Snakemake makes a run anew when its configuration changes, but never touches the checkpoints, which
are no declared output; and the trainer refuses to resume from one that does not fit. Nothing is
lost: the old folder keeps the first letters of its configuration's hash in its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

NAME, LOCK = "checkpoints", ".lock"


def fingerprint_of(path: Path) -> str | None:
    """Configuration hash in the header of a safetensors file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        return header["__metadata__"]["config_hash"]
    except (OSError, struct.error, ValueError, KeyError, TypeError, OverflowError, MemoryError):
        return None


def set_aside(folder: Path, fingerprint: str) -> bool:
    """Rename the checkpoints of another configuration; leave damaged ones to the trainer.

    Nothing is done either while a trainer works in the folder: the next one says so.
    """
    files = sorted((folder / NAME).glob("*.safetensors"), reverse=True)
    found = [mark for mark in map(fingerprint_of, files) if mark is not None]
    if not found or fingerprint in found:
        return False
    with _locked(folder) as free:
        if free:
            (folder / NAME).rename(_unused(folder / f"{NAME}.{found[0][:12]}"))
    return free


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _unused(path: Path) -> Path:
    names = itertools.chain(
        [path], (path.with_name(f"{path.name}.{i}") for i in itertools.count(2))
    )
    return next(name for name in names if not name.exists())


if __name__ == "__main__":
    if set_aside(Path(sys.argv[1]), sys.argv[2]):
        print(f"{sys.argv[1]}: the configuration has changed, the run starts anew")
