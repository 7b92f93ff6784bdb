"""What a person sees of a run while it goes on: a bar or lines, and curves in TensorBoard.

With or without them the tables of a run are the same.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError
from magellan.core.files import cannot_write
from magellan.jobs.log import show
from magellan.training.loop import Trainer

# A terminal that was closed must not end a run.
GONE = contextlib.suppress(OSError, ValueError)


def speed_in_words(done: int, seconds: float, to_do: int, unit: str) -> str:
    """How fast a run is, and how long it will take; nothing of the latter before the first round.

    Args:
        done: units done in so many seconds.
        seconds: time taken, above 0.
        to_do: units that are left.
        unit: `episodes`, `steps` or `updates`.
    """
    rate = done / seconds
    if done == 0:
        return "time left n/a"
    shown = f"{rate:.0f} {unit}/s" if rate >= 9.5 else f"{rate:.2g} {unit}/s"
    return f"{shown}, {max(0.0, to_do / rate):.0f} s left"


class Progress:
    """What a person sees on standard error: a bar, or a line every 20 seconds, and the result.

    Args:
        trainer: of the run.
        style: `bar`, or lines instead where standard error is no terminal; `lines`; or `none`.
    """

    SECONDS_PER_LINE = 20.0

    def __init__(self, trainer: Trainer, style: str) -> None:
        self._trainer = trainer
        self._style = "lines" if style == "bar" and not sys.stderr.isatty() else style
        config = trainer.config
        self._name = f"{config.sampler}/{config.goal_space}/seed{config.seed}"
        self._total, self._unit = config.budget.end, config.budget.unit
        self._line_at = self._begun = time.monotonic()
        self._first = trainer.spent
        self._bar: tqdm | None = None
        if self._style == "bar":
            unit = "ep" if self._unit == "episodes" else self._unit
            with GONE:
                self._bar = tqdm(total=self._total, initial=self._first, desc=self._name, unit=unit)

    def show(self) -> None:
        """Called after every round."""
        if self._bar is not None:
            with GONE:
                self._bar.set_postfix_str(self._success(), refresh=False)
                self._bar.update(self._spent() - self._bar.n)
        elif self._style == "lines" and time.monotonic() - self._line_at >= self.SECONDS_PER_LINE:
            self._line()

    def _line(self) -> None:
        self._line_at = time.monotonic()
        spent = self._spent()
        speed = speed_in_words(
            spent - self._first, self._line_at - self._begun, self._total - spent, self._unit
        )
        show(f"{self._name}: {spent:,} of {self._total:,} {self._unit}, {self._success()}, {speed}")

    def _spent(self) -> int:
        """Part of the budget that is spent; a last round may go beyond it."""
        return min(self._trainer.spent, self._total)

    def _success(self) -> str:
        """Success of recent practice, from the last closed window."""
        kinds = len(self._trainer.goals.world.categories)
        rows = self._trainer.record.tables["practice"][-kinds:]
        played, won = (sum(row[column] for row in rows) for column in (-2, -1))
        return f"success {won / played:.2f}" if played else "success n/a"

    def close(self) -> None:
        """Finish the bar."""
        if self._bar is not None:
            with GONE:
                self._bar.close()

    def result(self, seconds: float) -> None:
        """One line at the end: how long the run took, and its success at the last evaluation."""
        if self._style != "none":
            done = f"{self._total:,} {self._unit} in {seconds:.0f} s"
            splits = "; ".join(f"{split} goals: {text}" for split, text in self._last().items())
            show(f"{self._name}: complete, {done}. Success at the end on {splits}")

    def _last(self) -> dict[str, str]:
        """Success of each category at the last evaluation, in words, by split."""
        record, found = self._trainer.record, dict[str, str]()
        columns = record.columns("evaluation")
        rows = [dict(zip(columns, row, strict=True)) for row in record.tables["evaluation"]]
        for row in rows:
            if row["update"] == rows[-1]["update"]:
                before = f"{found[row['split']]}, " if row["split"] in found else ""
                found[row["split"]] = f"{before}{row['category']} {row['success']:.2f}"
        return found


TENSORBOARD = "tensorboard"
"""Name of its folder."""

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
        folder = output / TENSORBOARD
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
