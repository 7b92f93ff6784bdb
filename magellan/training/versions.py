"""What the numbers of a run depend on besides its configuration."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from magellan import __version__

LIBRARIES = ("torch", "transformers", "peft", "numpy", "gymnasium", "safetensors", "tokenizers")


def code_version() -> str:
    """Package version, with the commit when run from a repository."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{commit}"


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that the numbers depend on."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions
