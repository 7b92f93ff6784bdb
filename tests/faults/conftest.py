"""Training jobs, and faults at a chosen step: an update, an environment step or a system call."""

import contextlib
import errno
import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from magellan.agent.sac import SAC
from magellan.cli import main
from magellan.config import RunConfig
from magellan.core import files
from magellan.jobs import checkpoint
from magellan.jobs.run import train
from magellan.jobs.stopping import END_TIME, JOB, SIGNALS
from magellan.training.collect import Collector
from magellan.training.loop import Trainer
from tests import runs
from tests.runs import SPACE, contents, refusal, tables, trained

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.conftest", "magellan.backends.local", "peft"])
SAMPLERS = ("random", "magellan")
BUDGET = {"episodes": 30, "evaluate_every": 15, "evaluation_goals": 1, "practice_window": 10}
BUDGET |= {"record_every": 2, "checkpoint_seconds": 0, "checkpoint_share": 1}  # each update
TRAIN = ("train", "--preset", "smoke", "--goal-space", SPACE, "--seed", "3", "--progress", "none")
BRIEF = (*TRAIN, *(word for key, n in BUDGET.items() for word in ("--set", f"budget.{key}={n}")))
"""The command line of a run of `config`, but for sampler and folder."""
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
                return self._strike(name, file)
            half = os.write(first, more[0][: len(more[0]) // 2]) if name == "write" else 0
            self._strike(name, file)
            if name == "write":
                return half + os.write(first, more[0][half:])
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


def config(sampler: str = "random", budget=BUDGET, **layer) -> RunConfig:
    return runs.config(sampler, budget={**BUDGET, **budget}, **layer)


def refused(run: RunConfig, folder: Path) -> str:
    """The one-line error of a run that is not gone on with; its folder stays as it is."""
    before = contents(folder)
    line = refusal(train, run, folder, resume=True, progress="none")
    assert contents(folder) == before
    assert line.startswith(f"--resume: {folder}/checkpoints")
    return line


@pytest.fixture(autouse=True)
def quick_and_without_limits(monkeypatch):
    """No fsync: a kill, unlike a power failure, loses nothing without. No external time limit."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for name in (END_TIME, JOB):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def struck(action: Callable[[], None], *where) -> Iterator[None]:
    """An action at a step of a job: (n-th, step, file)."""
    with pytest.MonkeyPatch.context() as patch:
        install(once(action, *where), patch.setattr)
        yield


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> dict[str, dict[str, bytes]]:
    return {name: tables(trained(config(name), tmp_path_factory.mktemp(name))) for name in SAMPLERS}


@pytest.fixture
def goes_on(undisturbed):
    """Go on with a run to tables as if nothing had happened; returns the manifest."""

    def go_on(folder: Path, sampler: str = "random", progress: str = "none") -> dict:
        manifest = train(config(sampler), folder, resume=True, progress=progress)
        assert tables(folder) == undisturbed[sampler]
        return manifest

    return go_on


def start(folder: Path, *strikes: tuple, sampler: str = "random", more=()):
    """Run a job until it ends or stops itself; return (process, status or None, output)."""
    errors = Path(f"{folder}.errors")
    call = [*BRIEF, "--sampler", sampler, "--output", str(folder), *more]
    process = FORKS.Process(target=job, args=(call, strikes, str(errors)))
    process.start()
    state = Path(f"/proc/{process.pid}/stat")
    while process.exitcode is None:
        process.join(0.02)
        with contextlib.suppress(OSError):  # it is over
            if state.read_text().rpartition(")")[2].split()[0] == "T":
                break
    return process, process.exitcode, errors.read_text()


def resume(folder: Path, *strikes: tuple, more=(), status: int = 0, **named) -> str:
    """The output of a job that goes on, and ends with this status."""
    _, ended, output = start(folder, *strikes, more=("--resume", *more), **named)
    assert ended == status, output
    return output


def kill(folder: Path, *where, **named) -> None:
    """Resume until SIGKILL at the given step: (n-th, step, file)."""
    resume(folder, (signal.SIGKILL, *where), status=-signal.SIGKILL, **named)
