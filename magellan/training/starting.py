"""A run that starts where another one ended: the one that is its beginning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magellan.config import RunConfig, beginning, identity
from magellan.errors import InputError
from magellan.training.checkpoint import Checkpoints


@dataclass(frozen=True)
class Start:
    """What a run starts from.

    Attributes:
        state: of the trainer, at the end of the beginning.
        run: identity of the beginning.
        checkpoint: file in its folder.
        seconds: of training that it took.
    """

    state: dict[str, Any]
    run: str
    checkpoint: str
    seconds: float

    def described(self) -> dict[str, Any]:
        """For the manifest."""
        return {"run": self.run, "checkpoint": self.checkpoint, "seconds": round(self.seconds, 1)}


def check_start(config: RunConfig) -> RunConfig:
    """The beginning of a run that is to start from it.

    Raises:
        InputError: the run has one phase only.
    """
    first = beginning(config)
    if first is None:
        raise InputError(
            "--start: the run has one phase, so there is nothing that it could start from; allowed "
            "for runs with phases: the folder of a run that has all of them but the last"
        )
    return first


def find_start(folder: Path, config: RunConfig, backbone: str) -> Start:
    """The end of a run's beginning.

    folder: of the run that is the beginning of this one.
    config: of this one.
    backbone: SHA-256 of its language model's files.

    Raises:
        InputError: that run is another one, or has not ended, or its checkpoint is damaged.
    """
    first = check_start(config)
    found = Checkpoints(folder, first, backbone, own=False).load()
    if found is None:
        raise InputError(
            f"--start: {folder} holds no checkpoint; allowed: the folder of a run that has ended, "
            f"with its checkpoints; remove {folder} and train that run again"
        )
    trainer = found.state["trainer"]
    if trainer["next_evaluation"] <= first.budget.end:
        raise InputError(
            f"--start: the run in {folder} has not ended; train it to its end first, with --resume"
        )
    return Start(trainer, identity(first), found.name, float(found.state["seconds"]))
