"""Small runs that tests train, and the files in their folders."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from magellan.competence import ESTIMATORS
from magellan.config import HEAD, RunConfig, resolve_run
from magellan.core.columns import COLUMNS, OPTIONAL
from magellan.core.errors import InputError, StoppedEarly
from magellan.jobs.run import train
from magellan.jobs.stopping import Stopper
from magellan.samplers import SAMPLERS
from magellan.training.loop import Trainer

SPACE = "40-20-10-5-5"
EVALUATED = {
    "evaluated_goals": {"every": 40, "episodes": 1},
    "evaluated_buckets": {"every": 30, "episodes": 8},
}
"""Settings of the estimators that play episodes of their own."""


def watchers(sampler: str) -> list[str]:
    """All estimators that can observe a run of this sampler: at most one has the model's head."""
    head = "learned_groups" if SAMPLERS[sampler].estimator == "learned_groups" else "learned"
    return [name for name in ESTIMATORS if name == head or ESTIMATORS[name].section != HEAD]


def config(sampler: str = "magellan", **layer) -> RunConfig:
    """A run of 120 episodes; a key of `layer` is a section or a value."""
    return resolve_run("smoke", [{"sampler": sampler, "goal_space": SPACE, "seed": 3}, layer])


def trained(run: RunConfig, folder: Path, start: Path | None = None) -> Path:
    """Train a run without interruption; return its folder."""
    train(run, folder, resume=False, progress="none", start=start)
    return folder


def finish(trainer: Trainer) -> Trainer:
    """Train to the end."""
    while not trainer.done:
        trainer.advance()
    return trainer


def rows(folder: Path, table: str) -> list[dict]:
    """The rows of a table."""
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of every run."""
    return {name: (folder / f"{name}.csv").read_bytes() for name in COLUMNS if name not in OPTIONAL}


def contents(folder: Path) -> dict[str, bytes]:
    """Contents of every file below a folder, except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refusal(call, *arguments, **named) -> str:
    """The one-line error of a refused call."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails and prints nothing else."""
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def stopped(run: RunConfig, folder: Path, reason: str = "on SIGTERM", **more) -> Path:
    """Train a run that stops as soon as possible; return its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stopper, "reason", reason)
        with pytest.raises(StoppedEarly, match=re.escape(reason)):
            train(run, folder, resume=True, progress="none", **more)
    return folder
