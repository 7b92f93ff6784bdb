"""Rows of measurements, derived figures, and tables of rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.released import NO_RATIO, RELEASED, WHERE


@dataclass(frozen=True)
class Row:
    """One measured figure.

    row, shape, size: name, model and goal space; model and goal space may be empty.
    value: the figure, a median over `repetitions`.
    unit: ms, s, MB, steps/s or x.
    seconds: wall time of one operation; None where no other column needs it.
    gflop: floating point operations of its matrix products, in 10^9; None where not counted.
    alone: seconds of these products alone.
    """

    row: str
    value: float
    unit: str
    repetitions: int
    shape: str = ""
    size: str = ""
    seconds: float | None = None
    gflop: float | None = None
    alone: float | None = None

    @property
    def released(self) -> float | None:
        """Figure of the released code on another machine, in the unit of this row."""
        return RELEASED.get((self.row, self.shape, self.size))

    @property
    def rate(self) -> float | None:
        """GFLOP/s reached."""
        if self.gflop is None or self.seconds is None:
            return None
        return self.gflop / self.seconds

    def fraction(self, matmul_rate: float) -> float | None:
        """Share of the wall time that the products would take at `matmul_rate` GFLOP/s."""
        return None if self.rate is None else self.rate / matmul_rate

    def ceiling(self, matmul_rate: float) -> float | None:
        """The `fraction` if only these products took time."""
        if self.gflop is None or self.alone is None:
            return None
        return self.gflop / self.alone / matmul_rate


COLUMNS = (
    *("row", "shape", "size", "value", "unit", "released"),
    *("gflop", "rate", "fraction", "ceiling", "repetitions"),
)
SHARES = ("fraction", "ceiling")


def to_csv(rows: Iterable[Row], matmul_rate: float) -> str:
    """A tidy table with the columns `COLUMNS`, six significant digits, empty for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        shares = {name: getattr(row, name)(matmul_rate) for name in SHARES}
        cells = [shares[key] if key in shares else getattr(row, key) for key in COLUMNS]
        writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
    return text.getvalue()


HEADINGS = (
    *("what", "model", "goals", "here", "released, elsewhere"),
    *("GFLOP", "GFLOP/s", "floor / time", "at best", "n"),
)

NOTES = (
    "Constants are the paper's: 32 environments, 64 steps per update, batches of 256, a refresh "
    "(learning progress of all goals) every 32 updates. Acting is those 64 steps; a value is a "
    "median over n repetitions.",
    "Whole loop: where `without refresh` is listed too, n single rounds were timed and 1/32 of a "
    "refresh was added; otherwise n spans of 32 updates with one refresh in each.",
    "The released refresh is the faster of its two timings, with minibatches of 256 goals; as "
    "published it takes 47.6 s. It computes the delayed competence, which is remembered here.",
)


def to_markdown(rows: Sequence[Row], matmul_rate: float) -> str:
    """Markdown table with notes below."""
    cells = [_cells(row, matmul_rate) for row in rows]
    lines = [HEADINGS, ("---",) * 3 + ("---:",) * (len(HEADINGS) - 3), *cells]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [
        f"Released, elsewhere: the authors' code, {WHERE}; {NO_RATIO}. `t5` is such a model.",
        *NOTES,
        f"A 512 x 512 float32 product reached {number(matmul_rate)} GFLOP/s in the same run. The "
        "floor of a row is the time its matrix products would take at that rate. At best: the "
        "floor over the time that the same products took one by one, on warm memory and with "
        "nothing around them; these products in this library come no closer to it.",
    ]
    return "\n\n".join([table, *notes]) + "\n"


def _cells(row: Row, matmul_rate: float) -> tuple[str, ...]:
    shares = (row.fraction(matmul_rate), row.ceiling(matmul_rate))
    return (
        row.row,
        row.shape,
        row.size,
        f"{number(row.value)} {row.unit}",
        "" if row.released is None else f"{number(row.released)} {row.unit}",
        number(row.gflop),
        number(row.rate),
        *("" if share is None else f"{share:.0%}" for share in shares),
        str(row.repetitions),
    )


def number(value: float | None) -> str:
    """Three significant digits, whole above 100, commas between thousands; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
