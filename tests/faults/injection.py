"""Faults at a chosen step of a job: an update, an environment step or a system call."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magellan.agent.sac import SAC
from magellan.core import files
from magellan.jobs import checkpoint
from magellan.training.collect import Collector
from magellan.training.loop import Trainer

SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace", "unlink")
Strike = Callable[[str, str], None]


class Killed(BaseException):
    """Ends the code like SIGKILL: no error handler catches it."""


def os_error(name: str) -> OSError:
    """The error of a system call, such as `ENOSPC`."""
    return OSError(getattr(errno, name), os.strerror(getattr(errno, name)))


class StrikingOS:
    """The module `os` with a strike at every call that changes a file; a write is in its middle.

    Args:
        strike: gets the name of the call and the file it is about; may raise, or kill the process.
    """

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._files: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in SYSTEM_CALLS:
            return real

        def call(first: Any, *more: Any) -> Any:
            file = more[0] if name == "replace" else self._files.get(first, first)
            if name == "write":
                half = len(more[0]) // 2
                written = os.write(first, more[0][:half])
                self._strike(name, str(file))
                return written + os.write(first, more[0][half:])
            if name != "close":
                self._strike(name, str(file))
            result = real(first, *more)
            if name == "close":
                self._strike(name, str(file))
            elif name == "open":
                self._files[result] = str(first)
            return result

        return call


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


@dataclass
class Once:
    """Strikes at the n-th step (from 1) of those with this name and this part of a path."""

    action: Callable[[], None]
    nth: int = 1
    step: str = ""
    file: str = ""

    def __call__(self, step: str, file: str) -> None:
        if self.step in ("", step) and self.file in file:
            self.nth -= 1
            if self.nth == 0:
                self.action()
