"""Faults at a chosen step of a job: an update, an environment step or a system call."""

import errno
import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from magellan.agent.sac import SAC
from magellan.cli import main
from magellan.core import files
from magellan.jobs import checkpoint
from magellan.jobs.stopping import END_TIME, JOB, SIGNALS
from magellan.training.collect import Collector
from magellan.training.loop import Trainer

SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace", "unlink")
Strike = Callable[[str, str], None]


class Killed(BaseException):
    """Ends the code like SIGKILL: no error handler catches it."""


def os_error(name: str) -> OSError:
    return OSError(getattr(errno, name), os.strerror(getattr(errno, name)))


class StrikingOS:
    """The module `os` with a strike at every call that changes a file; a write is in its middle.

    `strike` gets the name of the call and the file it is about; it may raise, or kill the process.
    """

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._files: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in SYSTEM_CALLS:
            return real

        def call(first: Any, *more: Any) -> Any:
            file = str(more[0] if name == "replace" else self._files.get(first, first))
            if name == "close":  # a descriptor that is struck is closed all the same
                real(first)
                self._strike(name, file)
                return None
            if name == "write":
                half = os.write(first, more[0][: len(more[0]) // 2])
                self._strike(name, file)
                return half + os.write(first, more[0][half:])
            self._strike(name, file)
            result = real(first, *more)
            if name == "open":
                self._files[result] = file
            return result

        return call


def install(strike: Strike, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Call `strike` at every step of a job; `put` is setattr, or pytest's."""
    for module in (checkpoint, files):
        put(module, "os", StrikingOS(strike))
    for owner, name in ((Trainer, "advance"), (SAC, "update_policy"), (Collector, "step")):
        put(owner, name, _struck(getattr(owner, name), name, strike))


def _struck(method: Callable, name: str, strike: Strike) -> Callable:
    def call(*arguments: Any) -> Any:
        strike(name, "")
        return method(*arguments)

    return call


def once(action: Callable[[], None], nth: int, step: str = "", file: str = "") -> Strike:
    """Strikes at the n-th step (from 1) of those with this name and this part of a path."""
    passed = itertools.count(1)

    def strike(name: str, path: str) -> None:
        if step in ("", name) and file in path and next(passed) == nth:
            action()

    return strike


def job(call: list[str], strikes: list[tuple], errors: str) -> None:
    """Run a command as in a terminal; it sends itself each signal: (signal, n-th, step, file)."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (END_TIME, JOB):
        os.environ.pop(name, None)
    torch.set_num_threads(1)
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for output in (1, 2):
        os.dup2(descriptor, output)
    own = [once(partial(os.kill, os.getpid(), number), *where) for number, *where in strikes]
    os.fsync = lambda _: None  # a kill, unlike a power cut, loses nothing without it
    install(lambda step, file: [strike(step, file) for strike in own])
    sys.exit(main(call))
