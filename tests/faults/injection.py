"""Faults at a chosen step of a job: an update, an environment step or a system call."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from magellan.agent.sac import SAC
from magellan.core import files
from magellan.jobs import checkpoint
from magellan.training.collect import Collector
from magellan.training.loop import Trainer

SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir")
Strike = Callable[[str, str], None]


class Killed(BaseException):
    """Ends the code like SIGKILL: no error handler catches it."""


def os_error(name: str) -> OSError:
    """The error of a system call, such as `ENOSPC`."""
    return OSError(getattr(errno, name), os.strerror(getattr(errno, name)))


class StrikingOS:
    """The module `os` with a strike before every call that changes a file, and within a write.

    Args:
        strike: gets the name of the call and the file it is about; may raise, or kill the process.
    """

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._files: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self, f"_{name}") if name in SYSTEM_CALLS else getattr(os, name)

    def _open(self, path: Path, *more: int) -> int:
        self._strike("open", str(path))
        descriptor = os.open(path, *more)
        self._files[descriptor] = str(path)
        return descriptor

    def _write(self, descriptor: int, content: bytes) -> int:
        half = len(content) // 2
        written = os.write(descriptor, content[:half])
        self._strike("write", self._files[descriptor])
        return written + os.write(descriptor, content[half:])

    def _fsync(self, descriptor: int) -> None:
        self._strike("fsync", self._files[descriptor])
        os.fsync(descriptor)

    def _close(self, descriptor: int) -> None:
        os.close(descriptor)
        self._strike("close", self._files[descriptor])

    def _replace(self, source: Path, target: Path) -> None:
        self._strike("replace", str(target))
        os.replace(source, target)

    def _unlink(self, path: Path) -> None:
        self._strike("unlink", str(path))
        os.unlink(path)

    def _mkdir(self, path: Path) -> None:
        self._strike("mkdir", str(path))
        os.mkdir(path)


def install(strike: Strike, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Call `strike` at every step of a job; `put` is setattr, or pytest's."""
    for module in (checkpoint, files):
        put(module, "os", StrikingOS(strike))
    for owner, name in ((Trainer, "advance"), (SAC, "update"), (Collector, "step")):
        put(owner, name, _struck(getattr(owner, name), name, strike))


def _struck(method: Callable, name: str, strike: Strike) -> Callable:
    def call(*arguments: Any) -> Any:
        strike(name, "")
        return method(*arguments)

    return call


class Count:
    """Strikes once: at the n-th step, counted over all steps or over those of some kind.

    Args:
        action: what the strike does.
        nth: from 1.
        step: name of a step, or empty for all.
        file: part of the file's path, or empty for all.
    """

    def __init__(
        self, action: Callable[[], None], nth: int = 1, step: str = "", file: str = ""
    ) -> None:
        self._action, self._nth, self._step, self._file = action, nth, step, file
        self.seen = 0

    def __call__(self, step: str, file: str) -> None:
        if self._step in ("", step) and self._file in file:
            self.seen += 1
            if self.seen == self._nth:
                self._action()
