"""Checkpoints kept for good, and runs that start from them or from another run's end.

`RUN/10000/checkpoints/00000001.safetensors` is the run at 10,000 episodes or shortly after: after
the round that passed them, before the evaluation there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magellan.config import RunConfig, beginning
from magellan.core.errors import InputError
from magellan.core.files import cannot_write
from magellan.jobs import log
from magellan.jobs.attempts import ancestry
from magellan.jobs.checkpoint import (
    FOLDER,
    MALFORMED,
    SUFFIX,
    Checkpoints,
    LoadedCheckpoint,
    invalid_state,
)

POINT = "kept"
"""Key of a kept state: length of the run, in case its folder is renamed."""


def keep(checkpoints: Checkpoints, point: int, state: Mapping[str, Any]) -> Path:
    """Write a run's state under the point that it has passed, unless an earlier attempt has.

    checkpoints: of the run.

    Raises:
        StorageError: it cannot be written.
    """
    kept = checkpoints.at(str(point))
    folder = kept.folder.parent
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    paths = kept.paths()
    return paths[-1] if paths else kept.save({**state, POINT: point})


def folders(run: Path) -> list[Path]:
    """Return the folders of kept checkpoints: those named by a number that hold no run."""
    if not run.is_dir():
        return []
    paths = (path for path in run.iterdir() if path.name.isdecimal())
    return sorted(path for path in paths if path.is_symlink() or not (path / log.NAME).exists())


def points(run: Path) -> list[int]:
    """Return the lengths at which a run kept a checkpoint, in order."""
    pattern = f"{FOLDER}/*{SUFFIX}"
    return sorted(int(path.name) for path in folders(run) if any(path.glob(pattern)))


def check_start(config: RunConfig) -> RunConfig:
    """Return the configuration of a run's beginning: all its phases but the last.

    Raises:
        InputError: the run has one phase only.
    """
    first = beginning(config)
    if first is None:
        raise InputError(
            "--start: the run has one phase, so it cannot start from another run; allowed for runs "
            "with phases: the folder of a run that has all of them but the last"
        )
    return first


def load_start(
    folder: Path, first: RunConfig, backbone: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the state that a run starts from.

    folder: of the run that is the beginning of this one, or a longer run's kept `RUN/10000`.
    first: the beginning, from `check_start`.
    backbone: SHA-256 of its language model's files.

    Returns:
        the trainer's state at the end of the beginning, and the entry `started_from` of the
        manifest: `run` that wrote it (identity), `checkpoint` in its folder, `at` (its length, if
        kept), `seconds` of training behind it, and `made_with`, its `ancestry`.

    Raises:
        InputError: that run does not match, has not ended or was not kept at this length, or its
            checkpoint is damaged.
    """
    kept = is_kept(folder)
    try:
        loaded = (_load_kept if kept else _load_ended)(folder, first, backbone)
        started_from = {
            "run": loaded.run,
            "checkpoint": f"{folder.name}/{FOLDER}/{loaded.name}" if kept else loaded.name,
            **({"at": first.budget.end} if kept else {}),
            "seconds": round(float(loaded.state["seconds"]), 1),
            "made_with": ancestry(loaded.state),
        }
        return loaded.state["trainer"], started_from
    except InputError:
        raise
    except MALFORMED as error:
        raise invalid_state(f"--start: {folder}", error) from error


def _load_ended(folder: Path, first: RunConfig, backbone: str) -> LoadedCheckpoint:
    """Load the final state of the run in this folder."""
    other, kept = "name the run that has the phases before the last one", first.budget.end
    if (folder / str(kept)).is_dir():
        other += f"; allowed: {folder / str(kept)}, which it keeps"
    remedies = (f"remove {folder} and train that run again", other)
    loaded = Checkpoints(folder, first, backbone, "--start", remedies).load()
    if loaded is None:
        raise InputError(
            f"--start: {folder} holds no checkpoint; allowed: the folder of a run that has ended, "
            f"with its checkpoints; remove {folder} and train that run again"
        )
    if loaded.state["trainer"]["next_evaluation"] <= first.budget.end:
        raise InputError(
            f"--start: the run in {folder} has not ended; train it to its end first, with --resume"
        )
    return loaded


def is_kept(folder: Path) -> bool:
    """Whether this is the folder of a kept checkpoint, not of a run named by a number."""
    if not folder.name.isdecimal() or (folder / log.NAME).exists():
        return False
    return folder.is_dir() or (folder.parent / log.NAME).exists()


def _load_kept(folder: Path, first: RunConfig, backbone: str) -> LoadedCheckpoint:
    """Load a kept checkpoint of a longer run, as if that run had ended there.

    It was written before the evaluation there, which the starting run does instead.
    """
    point, end, unit = int(folder.name), first.budget.end, first.budget.unit
    if point != end:
        raise InputError(
            f"--start: {folder} is a run at {point} {unit}, and the phases before the last one end "
            f"at {end}; allowed: {folder.parent / str(end)}; {_describe_kept(folder.parent)}"
        )
    remedies = (
        f"move {folder.parent} away and train that run again",
        f"name a run that is the same up to {point} {unit}",
    )
    loaded = Checkpoints(folder, first, backbone, "--start", remedies, at=point).load()
    if loaded is None:
        raise InputError(
            f"--start: {folder} holds no checkpoint; {_describe_kept(folder.parent)}; allowed: "
            "a checkpoint kept there by budget.keep_every, or the folder of a run that ended there"
        )
    _check_point(folder, loaded, first)
    trainer = loaded.state["trainer"]
    trainer["next_evaluation"] = min(trainer["next_evaluation"], point)
    return loaded


def _check_point(folder: Path, loaded: LoadedCheckpoint, first: RunConfig) -> None:
    """Check that it was kept at this point, where a row of `practice` ends."""
    point, budget = first.budget.end, first.budget
    kept_at = loaded.state.get(POINT, point)
    if kept_at != point:
        raise InputError(
            f"--start: {folder} was kept at {kept_at} {budget.unit}; allowed: its own name, "
            f"{kept_at}"
        )
    rows = loaded.state["trainer"]["record"]["tables"]["practice"]
    if budget.unit == "episodes" and not any(row[-4] == point for row in rows):
        raise InputError(
            f"--start: {folder}: a row of practice.csv continues past {point} episodes: "
            f"budget.practice_window is {budget.practice_window}; allowed: a phase that ends at a "
            "multiple of it, or the folder of a run that ended there"
        )


def _describe_kept(run: Path) -> str:
    """List a run's kept checkpoints, for errors."""
    return f"{run} keeps {', '.join(map(str, points(run))) or 'none'}"
