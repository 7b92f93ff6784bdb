"""Advice for damaged tables: those that a git repository keeps are a command away."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from magellan.core.errors import InputError


def advice(folder: Path) -> str:
    """How to get back a folder that git tracks and that differs from what it has; else empty."""
    place = folder if folder.is_dir() else folder.parent
    try:
        found = subprocess.run(
            ["git", "diff", "--quiet", "--no-ext-diff", "--", folder.absolute()],
            cwd=place,
            capture_output=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    differs = found.returncode == 1
    return f"`git checkout -- {shlex.quote(str(folder))}` restores it" if differs else ""


@contextlib.contextmanager
def advised(folder: Path) -> Iterator[None]:
    """Add to an InputError about the files of a folder how to get them back."""
    try:
        yield
    except InputError as error:
        text = advice(folder)
        if not text:
            raise
        raise InputError(f"{error}; {text}") from None
