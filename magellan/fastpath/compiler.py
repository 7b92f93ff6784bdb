"""Compile a C++ file of this package for this machine, and cache the library in the user's home.

The file name in the cache is a hash of source, options, compiler and processor. The file is written
atomically, so jobs that start together on a shared home may all compile it.
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

COMPILERS = ("c++", "g++", "clang++")
OPTIONS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared"),
    # NaN and infinity must propagate: the training loop checks for them.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SECONDS = 120.0
"""Time limit; a compilation takes 3 s."""
SUFFIX = ".so"
_PROCESSOR = ("model name", "flags", "CPU part", "Features")  # of /proc/cpuinfo


class NotCompiledError(Exception):
    """Why there is no compiled code, as a short phrase."""


def load(source: Path) -> tuple[ctypes.CDLL, str]:
    """Load the library of a source file, compiled first if it is not in the cache.

    Returns:
        the library, and the compiler that made it.

    Raises:
        NotCompiledError: there is no compiler, it fails, or the cache cannot be written.
    """
    try:
        command = _compiler()
        version = _run_command([*command, "--version"]).splitlines()
        compiler = version[0].strip() if version else command[0]
        named = any(word.startswith(("-march=", "-mcpu=")) for word in command)
        options = [*OPTIONS, *([] if named else [_native_option()])]
        text = source.read_bytes().decode()
        key = [text, *options, *command, "\n".join(version), _processor()]
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
        path = cache_folder() / f"{source.stem}-{digest}{SUFFIX}"
        library = _load_cached(path)
        if library is None:
            _compile([*command, *options], source, path)
            library = ctypes.CDLL(str(path))
        return library, compiler
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        raise NotCompiledError(_describe_failure(error)) from error


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/magellan-bench, else ~/.cache/magellan-bench."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    caches = Path(folder) if os.path.isabs(folder) else Path.home() / ".cache"
    return caches / "magellan-bench"


def _load_cached(path: Path) -> ctypes.CDLL | None:
    """Library in the cache; None where it is absent or damaged."""
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _compiler() -> list[str]:
    """Command of $CXX, which may name a processor, else of the first compiler installed."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [[name] for name in COMPILERS]:
        path = shutil.which(command[0])
        if path is not None:
            return [path, *command[1:]]
    raise NotCompiledError("no C++ compiler")


def _native_option() -> str:
    """Option for all instructions of this processor."""
    intel = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return "-march=native" if intel else "-mcpu=native"


def _processor() -> str:
    """Properties of the processor on which native code depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    properties = [line for line in lines if line.split("\t")[0].strip() in _PROCESSOR]
    return "\n".join([platform.machine(), *properties])


def _compile(command: list[str], source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{source.stem}-", dir=path.parent) as folder:
        library = Path(folder) / path.name
        _run_command([*command, "-o", str(library), str(source)])
        library.replace(path)


def _run_command(command: list[str]) -> str:
    """Standard output of a command, run without input and in English."""
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


def _describe_failure(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = [line for line in error.stderr.splitlines() if "error" in line]
        return f"the compiler fails: {' '.join(lines[:1]) or f'status {error.returncode}'}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the compiler takes more than {SECONDS:g} s"
    return " ".join(f"{type(error).__name__}: {error}".split())
