"""Small runs that tests train, and the files in their folders."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save

from magellan.competence import ESTIMATORS
from magellan.config import RunConfig, resolve_run
from magellan.config.phases import HEAD
from magellan.core.columns import COLUMNS, OPTIONAL
from magellan.core.errors import InputError, StoppedEarly
from magellan.jobs import checkpoint
from magellan.jobs.run import train
from magellan.jobs.stopping import Stopper
from magellan.samplers import SAMPLERS
from magellan.training.loop import Trainer
from tests.snippets import contents as contents

SPACE = "40-20-10-5-5"
EVALUATED = {
    "evaluated_goals": {"every": 40, "episodes": 1},
    "evaluated_buckets": {"every": 30, "episodes": 8},
}
"""Settings of the estimators that play episodes of their own."""


def printed(value: Any, decimals: int, roundings: int = 1) -> Any:
    """Equal to what was computed of numbers with so many decimals, by so many roundings in all."""
    return pytest.approx(value, abs=(0.5 * roundings + 0.1) * 10.0**-decimals)


def watchers(sampler: str) -> list[str]:
    """All estimators that can observe a run of this sampler: at most one has the model's head."""
    head = "learned_groups" if SAMPLERS[sampler].estimator == "learned_groups" else "learned"
    return [name for name in ESTIMATORS if name == head or ESTIMATORS[name].section != HEAD]


def config(sampler: str = "magellan", **layer) -> RunConfig:
    """A run of 120 episodes; a key of `layer` is a section or a value."""
    return resolve_run("smoke", [{"sampler": sampler, "goal_space": SPACE, "seed": 3}, layer])


def trained(run: RunConfig, folder: Path, start: Path | None = None) -> Path:
    train(run, folder, resume=False, progress="none", start=start)
    return folder


def finish(trainer: Trainer) -> Trainer:
    while not trainer.done:
        trainer.advance()
    return trainer


def rows(folder: Path, table: str) -> list[dict]:
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / f"{name}.csv").read_bytes() for name in COLUMNS if name not in OPTIONAL}


def forge(path: Path, where: str, value: Any) -> None:
    """Put another value, or that of a function of the tensor there, into a checkpoint's state.

    The checksum matches. A part `*` of the place is the first key.
    """
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata, tensors = json.loads(content[8 : 8 + length])["__metadata__"], load(content)
    tree = inner = json.loads(metadata["state"])

    def key_of(part: str) -> Any:
        return next(iter(inner)) if part == "*" else int(part) if isinstance(inner, list) else part

    *way, last = where.split("/")
    for part in way:
        inner = inner[key_of(part)]
    if callable(value):
        (name,) = inner[key_of(last)].values()
        tensors[name] = value(tensors[name])
    else:
        inner[key_of(last)] = value
    metadata["state"] = json.dumps(tree)
    metadata["sha256"] = checkpoint._checksum(metadata, tensors)
    path.write_bytes(save(tensors, metadata))


def refusal(call, *arguments, **named) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refuses(words: str, call, *arguments, **named) -> None:
    """A call is refused with an error in which these words, a regular expression, are."""
    assert re.search(words, line := refusal(call, *arguments, **named)), line


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails and prints nothing else."""
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def stopped(run: RunConfig, folder: Path) -> Path:
    """Train a run that stops as soon as possible; return its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stopper, "reason", "on SIGTERM")
        with pytest.raises(StoppedEarly, match="on SIGTERM"):
            train(run, folder, resume=True, progress="none")
    return folder
