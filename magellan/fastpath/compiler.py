"""A C++ file of this package, compiled for the machine at hand and kept in the user's cache.

The file's name in the cache says what it was made of: source, options, compiler, processor. It
appears whole or not at all, so that jobs which start together on a shared home may all make it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

COMPILERS = ("c++", "g++", "clang++")
OPTIONS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared"),
    # NaN and infinity stay what they are: the loop looks for them.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SECONDS = 120.0
"""A compilation takes 3."""
SUFFIX = ".so"
_PROCESSOR = ("model name", "flags", "CPU part", "Features")  # of /proc/cpuinfo


class NotCompiledError(Exception):
    """Why there is no compiled code, in a few words."""


class Compiled(NamedTuple):
    """Loaded code, and the compiler that made it."""

    library: ctypes.CDLL
    compiler: str


def load(source: Path) -> Compiled:
    """Load a source's functions; compile it first where that has not been done.

    Raises:
        NotCompiledError: no compiler, it fails, or the cache cannot be written.
    """
    try:
        command = _compiler()
        said = _output([*command, "--version"]).splitlines()
        compiler = said[0].strip() if said else command[0]
        text = source.read_bytes()
        options = [*OPTIONS, _tuned()]
        key = [text.decode(), *options, *command, "\n".join(said), _processor()]
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
        path = cache_folder() / f"{source.stem}-{digest}{SUFFIX}"
        library = _opened(path)
        if library is None:
            _compile([*command, *options], source, path)
            library = ctypes.CDLL(str(path))
        return Compiled(library, compiler)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        raise NotCompiledError(_reason(error)) from error


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/magellan-bench, else ~/.cache/magellan-bench."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    caches = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return caches / "magellan-bench"


def _opened(path: Path) -> ctypes.CDLL | None:
    """What is in the cache; None where it is absent or damaged."""
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _compiler() -> list[str]:
    """$CXX, else the first compiler there is."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in COMPILERS]:
        found = shutil.which(command[0])
        if found is not None:
            return [found, *command[1:]]
    raise NotCompiledError("no C++ compiler")


def _tuned() -> str:
    """The option that lets a compiler use all that this processor can do."""
    intel = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return "-march=native" if intel else "-mcpu=native"


def _processor() -> str:
    """What code tuned for this processor depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.split("\t")[0].strip() in _PROCESSOR]
    return "\n".join([platform.machine(), *told])


def _compile(command: list[str], source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{source.stem}-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        _output([*command, "-o", str(made), str(source)])
        made.replace(path)


def _output(command: list[str]) -> str:
    """What a command prints; it hears nothing, and speaks English."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=SECONDS,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = [line for line in error.stderr.splitlines() if "error" in line]
        return f"the compiler fails: {' '.join(said[:1]) or f'status {error.returncode}'}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the compiler takes more than {SECONDS:g} s"
    return " ".join(f"{type(error).__name__}: {error}".split())
