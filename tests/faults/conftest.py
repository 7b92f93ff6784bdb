import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magellan.config import RunConfig
from magellan.jobs.run import train
from magellan.jobs.stopping import END_TIME, JOB
from tests import runs
from tests.faults.injection import install, job, once
from tests.runs import SPACE, contents, refusal, tables, trained

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.injection", "magellan.backends.local", "peft"])
SAMPLERS = ("random", "magellan")
BUDGET = {
    "episodes": 30,
    "evaluate_every": 15,
    "evaluation_goals": 1,
    "practice_window": 10,
    "record_every": 2,
    # A checkpoint after every update.
    "checkpoint_seconds": 0,
    "checkpoint_share": 1,
}
TRAIN = ("train", "--preset", "smoke", "--goal-space", SPACE, "--seed", "3", "--progress", "none")
BRIEF = (*TRAIN, *(word for key, n in BUDGET.items() for word in ("--set", f"budget.{key}={n}")))
"""The command line of a run of `config`, but for sampler and folder."""


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


class Jobs:
    """Training jobs, forks of a process that has imported everything."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors

    def start(self, folder: Path, *strikes: tuple, sampler: str = "random", more=()):
        """Run until it ends or stops itself; return (process, status or None, output)."""
        call = [*BRIEF, "--sampler", sampler, "--output", str(folder), *more]
        process = FORKS.Process(target=job, args=(call, strikes, str(self._errors)))
        process.start()
        state = Path(f"/proc/{process.pid}/stat")
        while process.exitcode is None:
            process.join(0.02)
            with contextlib.suppress(OSError):  # it is over
                if state.read_text().rpartition(")")[2].split()[0] == "T":
                    break
        return process, process.exitcode, self._errors.read_text()

    def resume(self, folder: Path, *strikes: tuple, sampler: str = "random", more=()):
        return self.start(folder, *strikes, sampler=sampler, more=("--resume", *more))

    def kill(self, folder: Path, *where, sampler: str = "random", more=()) -> None:
        """Resume until SIGKILL at the given step: (n-th, step, file)."""
        strike = (signal.SIGKILL, *where)
        _, status, output = self.resume(folder, strike, sampler=sampler, more=more)
        assert status == -signal.SIGKILL, output

    def finish(self, folder: Path, sampler: str = "random", more=()) -> dict[str, bytes]:
        _, status, output = self.resume(folder, sampler=sampler, more=more)
        assert status == 0, output
        return tables(folder)


@pytest.fixture(scope="session")
def jobs(tmp_path_factory) -> Jobs:
    return Jobs(tmp_path_factory.mktemp("jobs") / "errors")
