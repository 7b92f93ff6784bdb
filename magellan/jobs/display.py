"""What a run shows of itself: a bar or lines on the terminal, and curves in TensorBoard.

They do not affect the tables of a run.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from magellan.config import UNIT_COLUMNS
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError
from magellan.core.files import refuse_link, writing
from magellan.jobs.log import show
from magellan.training.loop import Trainer

# A closed terminal must not end a run.
IGNORE_CLOSED = contextlib.suppress(OSError, ValueError)


class Progress:
    """Progress on standard error: a bar, or a line every 20 seconds, and the result.

    style: `bar` (`lines` if standard error is not a terminal), `lines` or `none`.
    """

    SECONDS_PER_LINE = 20.0

    def __init__(self, trainer: Trainer, style: str) -> None:
        self._trainer = trainer
        self._style = "lines" if style == "bar" and not sys.stderr.isatty() else style
        config = trainer.config
        self._name = f"{config.sampler}/{config.goal_space}/seed{config.seed}"
        self._total, self._unit = config.budget.end, config.budget.unit
        self._line_at = self._start_time = time.monotonic()
        self._first = trainer.spent
        self._bar: tqdm | None = None
        if self._style == "bar":
            unit = "ep" if self._unit == "episodes" else self._unit
            with IGNORE_CLOSED:
                self._bar = tqdm(total=self._total, initial=self._first, desc=self._name, unit=unit)

    def show(self) -> None:
        """Update the display; called after every round."""
        if self._bar is not None:
            with IGNORE_CLOSED:
                self._bar.set_postfix_str(self._success(), refresh=False)
                self._bar.update(self._spent() - self._bar.n)
        elif self._style == "lines" and time.monotonic() - self._line_at >= self.SECONDS_PER_LINE:
            self._line_at, spent = time.monotonic(), self._spent()
            seconds, unit = self._line_at - self._start_time, self._unit
            of = {"unit": f" {unit}", "bar_format": "{rate_noinv_fmt}, {remaining} left"}
            speed = tqdm.format_meter(spent, self._total, seconds, initial=self._first, **of)
            show(f"{self._name}: {spent:,} of {self._total:,} {unit}, {self._success()}, {speed}")

    def _spent(self) -> int:
        """Budget consumed so far; the last round may exceed the budget."""
        return min(self._trainer.spent, self._total)

    def _success(self) -> str:
        """Success in practice, over the last complete window."""
        kinds = len(self._trainer.goals.world.categories)
        rows = self._trainer.record.tables["practice"][-kinds:]
        played, won = (sum(row[column] for row in rows) for column in (-2, -1))
        return f"success {won / played:.2f}" if played else "success n/a"

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            with IGNORE_CLOSED:
                self._bar.close()

    def result(self, seconds: float) -> None:
        """Print the duration of the run and its success at the last evaluation."""
        if self._style != "none":
            done = f"complete, {self._total:,} {self._unit} in {seconds:.0f} s"
            success = evaluations(self._trainer)
            at_end = [key for key in success if key[0] == list(success)[-1][0]]
            splits = "; ".join(f"{key[1]} goals: {success[key]}" for key in at_end)
            show(f"{self._name}: {done}. Success at the end on {splits}")


def evaluations(trainer: Trainer, first: int = 0) -> dict[tuple[int, str], str]:
    """Success per category as text, by length of the run and split.

    first: row of the table `evaluation` to begin with.
    """
    texts: dict[tuple[int, str], str] = {}
    unit, columns = UNIT_COLUMNS[trainer.config.budget.unit], trainer.record.columns("evaluation")
    for values in trainer.record.tables["evaluation"][first:]:
        row = dict(zip(columns, values, strict=True))
        text, point = f"{row['category']} {row['success']:.2f}", (row[unit], row["split"])
        texts[point] = f"{texts[point]}, {text}" if point in texts else text
    return texts


TENSORBOARD = "tensorboard"
"""Folder of the curves."""

Tables = Mapping[str, Sequence[Sequence[Any]]]


def check_sink(name: str) -> None:
    """Raise InputError if the packages of a sink are missing."""
    if name == "tensorboard":
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError:
            raise InputError(
                "--log: 'tensorboard' needs the package tensorboard, which is not installed; "
                "allowed: none, or first: pip install tensorboard"
            ) from None


class TensorBoard:
    """Curves of a run in its folder `tensorboard`, over policy updates.

    tables: rows at the start of the attempt, which earlier attempts have written.
    update: policy updates so far; later points of an earlier attempt are discarded.

    Raises:
        StorageError: the folder `tensorboard` is a link.
    """

    def __init__(self, output: Path, tables: Tables, update: int) -> None:
        self._written = {name: len(rows) for name, rows in tables.items()}
        folder = output / TENSORBOARD
        with writing(folder):
            refuse_link(folder)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=update + 1)

    def show(self, tables: Tables, update: int) -> None:
        """Write the new rows."""
        for name, rows in tables.items():
            for values in rows[self._written[name] :]:
                columns = COLUMNS[name]  # a run with phases has one more column before these
                row = dict(zip(columns, values[-len(columns) :], strict=True))
                for tag, value in _scalars(name, row):
                    self._writer.add_scalar(tag, value, int(row.get("update", update)))
            self._written[name] = len(rows)

    def close(self) -> None:
        """Flush and close the writer."""
        self._writer.close()


def _scalars(table: str, row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Points of a row: names and values of curves."""
    if table == "evaluation":
        return [(f"success/{row['split']}/{row['category']}", row["success"])]
    if table == "competence":
        of = f"{row['estimator']}/{row['split']}/{row['category']}"
        return [(f"{name}/{of}", row[name]) for name in ("competence", "learning_progress")]
    if table == "practice":
        return [(f"practice/{row['category']}", row["n"])]
    if table == "training":
        losses = sorted(set(row) - {"update", "step", "episode"})
        return [(f"training/{name}", row[name]) for name in losses if row[name] is not None]
    return []
