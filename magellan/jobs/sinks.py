"""Where the rows of a run go while it trains, besides its tables: TensorBoard, if asked for.

A sink only reads. With or without it the tables of a run are the same.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError
from magellan.core.files import cannot_write

SINKS = ("none", "tensorboard")
FOLDER = "tensorboard"

Tables = Mapping[str, Sequence[Sequence[Any]]]
Row = Mapping[str, Any]


class Writer(Protocol):
    """What TensorBoard's SummaryWriter offers, as far as it is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def close(self) -> None: ...


def check_sink(name: str) -> None:
    """InputError, before any work, where the packages of a sink are missing."""
    if name == "tensorboard":
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError:
            raise InputError(
                "--log: 'tensorboard' needs the package tensorboard, which is not installed; "
                "allowed: none, or first: pip install tensorboard"
            ) from None


def _tensorboard_writer(folder: Path, from_update: int) -> Writer:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_update)


class TensorBoard:
    """Curves of a run in its folder `tensorboard`, over policy updates.

    Args:
        output: folder of the run.
        tables: rows that there are when the attempt begins; these were written by earlier ones.
        update: policy updates so far; what an earlier attempt wrote past them is taken back.
        make_writer: (folder, first update that is not yet true) to a writer; TensorBoard's.

    Raises:
        StorageError: that folder is a link.
    """

    def __init__(
        self,
        output: Path,
        tables: Tables,
        update: int,
        make_writer: Callable[[Path, int], Writer] | None = None,
    ) -> None:
        self._shown = {name: len(rows) for name, rows in tables.items()}
        folder = output / FOLDER
        if folder.is_symlink():  # put there since the attempt began
            raise cannot_write(folder, OSError(errno.ELOOP, "it is a symbolic link"))
        self._writer = (make_writer or _tensorboard_writer)(folder, update + 1)

    def show(self, tables: Tables, update: int) -> None:
        """Write rows that are new."""
        for name, rows in tables.items():
            for values in rows[self._shown[name] :]:
                columns = COLUMNS[name]  # the last of them: a run may have one before, its phase
                row = dict(zip(columns, values[-len(columns) :], strict=True))
                for tag, value in _scalars(name, row):
                    self._writer.add_scalar(tag, value, int(row.get("update", update)))
            self._shown[name] = len(rows)

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()


def _scalars(table: str, row: Row) -> list[tuple[str, float]]:
    """Curves that a row has a point of: names and values."""
    if table == "evaluation":
        return [(f"success/{row['split']}/{row['category']}", row["success"])]
    if table == "competence":
        place = f"{row['estimator']}/{row['split']}/{row['category']}"
        names = ("competence", "learning_progress")
        return [(f"{name}/{place}", row[name]) for name in names]
    if table == "practice":
        return [(f"practice/{row['category']}", row["n"])]
    if table == "training":
        losses = sorted(set(row) - {"update", "step", "episode"})
        return [(f"training/{name}", row[name]) for name in losses if row[name] is not None]
    return []
