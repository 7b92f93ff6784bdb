"""Checkpoints that are kept for good, and runs that start from them or where another run ended.

`RUN/10000/checkpoints/00000001.safetensors` is the run at 10,000 episodes, or shortly behind: after
the round that passed them, before the evaluation there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magellan.config import RunConfig, beginning
from magellan.core.errors import InputError
from magellan.core.files import cannot_write
from magellan.jobs import log
from magellan.jobs.attempts import ancestry
from magellan.jobs.checkpoint import FOLDER, MALFORMED, SUFFIX, Checkpoints, Found, does_not_fit

POINT = "kept"
"""Key of a kept state that says how far the run was, should its folder get another name."""


class Keeper:
    """Says when a checkpoint is to be kept, and writes it.

    Args:
        folder: of the run.
        config: of the run; `budget.keep_every` says how often.
        backbone: digest of the language model's files.
        spent: how far the run is, in what its budget counts.
    """

    def __init__(self, folder: Path, config: RunConfig, backbone: str, spent: int) -> None:
        self._folder, self._config, self._backbone = folder, config, backbone
        self._every = config.budget.keep_every
        self._last = self._planned(spent)

    def _planned(self, spent: int) -> int:
        """The last point at or before `spent`; 0 where there is none."""
        return spent // self._every * self._every if self._every else 0

    def is_due(self, spent: int) -> bool:
        """Whether a point was passed since the last one."""
        return self._planned(spent) > self._last

    def keep(self, spent: int, state: Mapping[str, Any]) -> Path:
        """Write the state under the point that was passed, unless an earlier attempt has.

        Raises:
            StorageError: it cannot be written.
        """
        self._last = self._planned(spent)
        folder = self._folder / str(self._last)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(folder, error) from error
        kept = Checkpoints(folder, self._config, self._backbone)
        whole = {**state, POINT: self._last}
        return kept.save(whole) if not kept.paths() else kept.paths()[-1]


def check_kept(run: Path, config: RunConfig, backbone: str) -> None:
    """Refuse a folder in which another run has left checkpoints: they would pass for this one's.

    Args:
        run: its folder.
        config: of the run that is to go on there.
        backbone: digest of the language model's files.

    Raises:
        InputError: names the checkpoint, and how the configurations differ.
    """
    for folder in folders(run):
        Checkpoints(folder, config, backbone).check_kept_by_this_run()


def folders(run: Path) -> list[Path]:
    """What lies in a run's folder under a number, but for runs of their own."""
    if not run.is_dir():
        return []
    numbered = (path for path in run.iterdir() if path.name.isdecimal())
    return sorted(p for p in numbered if p.is_symlink() or not (p / log.NAME).exists())


def points(run: Path) -> list[int]:
    """How far a run was where it kept a checkpoint, in order."""
    whole = f"{FOLDER}/*{SUFFIX}"
    return sorted(int(path.name) for path in folders(run) if any(path.glob(whole)))


@dataclass(frozen=True)
class Start:
    """What a run starts from.

    Attributes:
        state: of the trainer, at the end of the beginning.
        run: identity of the run that it is from.
        checkpoint: file in its folder.
        seconds: of training that it took.
        made_with: what the attempts behind it had, those of its own beginning first.
        at: length of that run, where it is a checkpoint that the run kept on its way.
    """

    state: dict[str, Any]
    run: str
    checkpoint: str
    seconds: float
    made_with: list[dict[str, Any]]
    at: int | None = None

    def described(self) -> dict[str, Any]:
        """For the manifest."""
        kept = {} if self.at is None else {"at": self.at}
        seconds, made = round(self.seconds, 1), {"made_with": self.made_with}
        return {"run": self.run, "checkpoint": self.checkpoint, **kept, "seconds": seconds, **made}


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

    folder: of the run that is the beginning of this one; or what a longer one kept, `RUN/10000`.
    config: of this one.
    backbone: SHA-256 of its language model's files.

    Raises:
        InputError: that run is another one, or has not ended, or was not kept at this length; or
            its checkpoint is damaged.
    """
    first = check_start(config)
    try:
        return (_kept if is_kept(folder) else _ended)(folder, first, backbone)
    except InputError:
        raise
    except MALFORMED as error:
        raise does_not_fit(f"--start: {folder}", error) from error


def _ended(folder: Path, first: RunConfig, backbone: str) -> Start:
    """The end of the run in this folder."""
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
    made, seconds = ancestry(found.state), float(found.state["seconds"])
    return Start(trainer, found.run, found.name, seconds, made)


def is_kept(folder: Path) -> bool:
    """Whether this names a checkpoint that a run keeps; a run may lie in such a folder too."""
    if not folder.name.isdecimal() or (folder / log.NAME).exists():
        return False
    return folder.is_dir() or (folder.parent / log.NAME).exists()


def _kept(folder: Path, first: RunConfig, backbone: str) -> Start:
    """The checkpoint of a run that went on, as if it had ended there.

    It was written before the evaluation there, which is left to the run that starts.
    """
    point, end, unit = int(folder.name), first.budget.end, first.budget.unit
    if point != end:
        raise InputError(
            f"--start: {folder} is a run at {point} {unit}, and the phases before the last one end "
            f"at {end}; allowed: {folder.parent / str(end)}; {_listed(folder.parent)}"
        )
    found = Checkpoints(folder, first, backbone, own=False, at=point).load()
    if found is None:
        raise InputError(
            f"--start: {folder} holds no checkpoint; {_listed(folder.parent)}; allowed: what a run "
            "with budget.keep_every has kept there, or the folder of a run that ended there"
        )
    _check_kept(folder, found, first)
    trainer = found.state["trainer"]
    trainer["next_evaluation"] = min(trainer["next_evaluation"], point)
    name, seconds = f"{point}/checkpoints/{found.name}", float(found.state["seconds"])
    return Start(trainer, found.run, name, seconds, ancestry(found.state), point)


def _check_kept(folder: Path, found: Found, first: RunConfig) -> None:
    """It was kept there, and no row of its tables lies across the end of the phase."""
    point, budget = first.budget.end, first.budget
    was = found.state.get(POINT, point)
    if was != point:
        raise InputError(
            f"--start: {folder} was kept at {was} {budget.unit}; allowed: its own name, {was}"
        )
    rows = found.state["trainer"]["record"]["tables"]["practice"]
    if budget.unit == "episodes" and not any(row[-4] == point for row in rows):
        raise InputError(
            f"--start: {folder}: a row of practice.csv goes on past {point} episodes: "
            f"budget.practice_window is {budget.practice_window}; allowed: a phase that ends at a "
            "multiple of it, or the folder of a run that ended there"
        )


def _listed(run: Path) -> str:
    """What a run has kept, in words."""
    kept = ", ".join(map(str, points(run)))
    return f"{run} keeps {kept or 'none'}"
