"""The files that a configuration value passes through.

A file counts where a function of it is called with the value, or with the section of the
configuration that holds it. `training/loop.py` and `training/parts.py`, which have the whole
configuration, come before.

Prints them: `python -m tests.training.following`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from analysis.tables.printing import head, row
from magellan.config import resolve_run
from magellan.core.settings import Section
from magellan.training.loop import Trainer
from tests.workflow.conftest import ROOT

PACKAGE = ROOT / "magellan"
# Values that are unique within a run.
VALUES = {
    "competence.learning_rate": 0.000123,
    "agent.gamma": 0.98765,
    "agent.learning_rate": 0.000127,
    "magellan.lp_threshold": 0.03579,
    "backbone.lora_alpha": 7877,
    "backend.kept_states_mb": 7901,
}
UPDATES = 1


@dataclass
class Way:
    """Records the files whose functions are called with a value or its section.

    Attributes:
        files: in the order in which the value comes to them, relative to the package.
        back: calls that take it from a file back to one that had it before.
    """

    files: list[str] = field(default_factory=list)
    back: set[tuple[str, str]] = field(default_factory=set)


def follow(key: str) -> Way:
    """Trace one key's value from `Trainer.__init__` through the first updates of a run."""
    section, name = key.split(".")
    layers = [{"sampler": "magellan", "goal_space": "40-20-10-5-5"}, {section: {name: VALUES[key]}}]
    config = resolve_run("smoke", layers)
    way, value = Way(), VALUES[key]

    def carries(argument: Any) -> bool:
        if isinstance(argument, Section):
            return getattr(argument, name, None) == value
        return isinstance(argument, int | float) and argument == value

    def called(frame: FrameType, event: str, _: Any) -> None:
        here = _file(frame.f_code)
        if event == "call" and here and any(map(carries, frame.f_locals.values())):
            _note(way, here, frame)

    sys.setprofile(called)
    try:
        trainer = Trainer(config)
        while trainer.updates < UPDATES:
            trainer.advance()
    finally:
        sys.setprofile(None)
    return way


def _note(way: Way, here: str, frame: FrameType) -> None:
    if here not in way.files:
        way.files.append(here)
    caller = frame.f_back
    while caller is not None and not _file(caller.f_code):
        caller = caller.f_back
    before = _file(caller.f_code) if caller is not None else ""
    if before in way.files and way.files.index(here) < way.files.index(before):
        way.back.add((before, here))


@cache
def _file(code: CodeType) -> str:
    """File of the package that contains the code; empty for other code and comprehensions."""
    path = Path(code.co_filename)
    inside = path.is_relative_to(PACKAGE) and not code.co_name.startswith("<")
    return path.relative_to(PACKAGE).as_posix() if inside else ""


def table() -> str:
    """Trace all `VALUES`."""
    rows = [
        [f"`{key}`", str(len(way.files)), ", ".join(way.files), str(len(way.back))]
        for key, way in ((key, follow(key)) for key in VALUES)
    ]
    header = ["value of", "files", "in this order", "times back"]
    return "\n".join([*head(header), *map(row, rows)])


if __name__ == "__main__":
    print(table())
