"""Renames a run's checkpoint if it belongs to another configuration: FOLDER FINGERPRINT.

Snakemake makes a run anew when its configuration changes, but never touches the checkpoint, which
is no declared output; and the trainer refuses to resume from one that does not fit. Nothing is
lost: the old checkpoint keeps the first letters of its configuration's hash in its name.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

NAME = "checkpoint.safetensors"


def fingerprint_of(path: Path) -> str | None:
    """Configuration hash in the header of a safetensors file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        return header["__metadata__"]["config_hash"]
    except (OSError, struct.error, ValueError, KeyError, OverflowError, MemoryError):
        return None


def set_aside(folder: Path, fingerprint: str) -> bool:
    """Remove the checkpoint of another configuration; leave a damaged one to the trainer."""
    found = fingerprint_of(folder / NAME)
    if found is None or found == fingerprint:
        return False
    (folder / NAME).rename(folder / f"checkpoint.{found[:12]}.safetensors")
    return True


if __name__ == "__main__":
    if set_aside(Path(sys.argv[1]), sys.argv[2]):
        print(f"{sys.argv[1]}: the configuration has changed, the run starts anew")
