"""What a person sees of a run while it goes on."""

from __future__ import annotations

import contextlib
import time

from tqdm import tqdm

from magellan.training.log import show
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
    return f"{shown}, {to_do / rate:.0f} s left"


class Progress:
    """What a person sees: a bar, or a line every 20 seconds, on standard error."""

    SECONDS_PER_LINE = 20.0

    def __init__(self, trainer: Trainer, style: str) -> None:
        self._trainer, self._style = trainer, style
        config = trainer.config
        self._name = f"{config.sampler}/{config.goal_space}/seed{config.seed}"
        self._total, self._unit = config.budget.end, config.budget.unit
        self._line_at = self._begun = time.monotonic()
        self._first = trainer.spent
        self._bar: tqdm | None = None
        if style == "bar":
            unit = "ep" if self._unit == "episodes" else self._unit
            with GONE:
                self._bar = tqdm(total=self._total, initial=self._first, desc=self._name, unit=unit)

    def show(self) -> None:
        """Called after every round."""
        if self._bar is not None:
            with GONE:
                self._bar.set_postfix_str(self._success(), refresh=False)
                self._bar.update(min(self._trainer.spent, self._total) - self._bar.n)
        elif self._style == "lines" and time.monotonic() - self._line_at >= self.SECONDS_PER_LINE:
            self._line()

    def _line(self) -> None:
        self._line_at = time.monotonic()
        spent = self._trainer.spent
        speed = speed_in_words(
            spent - self._first, self._line_at - self._begun, self._total - spent, self._unit
        )
        show(f"{self._name}: {spent:,} of {self._total:,} {self._unit}, {self._success()}, {speed}")

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
