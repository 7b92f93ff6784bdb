"""Checkpoints that are kept for good, each in a folder that is called by how far the run was.

`RUN/10000/checkpoints/00000001.safetensors` is the run at 10,000 episodes, or shortly behind: after
the round that passed them, before the evaluation there. Another run may start from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magellan.config import RunConfig
from magellan.core.files import cannot_write
from magellan.jobs import log
from magellan.jobs.checkpoint import FOLDER, SUFFIX, Checkpoints

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
