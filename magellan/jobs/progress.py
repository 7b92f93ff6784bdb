"""What a person sees of a run while it goes on."""

from __future__ import annotations

import contextlib
import sys
import time

from tqdm import tqdm

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
