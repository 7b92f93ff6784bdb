"""Tables of a run's folder, read strictly: one line says which cell is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from magellan.core.errors import InputError, shown


@dataclass(frozen=True)
class Line:
    """A row of a table, as text by column, and where it stands."""

    path: Path
    number: int
    cells: Mapping[str, str]

    def text(self, column: str, allowed: tuple[str, ...]) -> str:
        """One of the allowed words."""
        found = self.cells[column]
        if found not in allowed:
            raise self._refused(column, ", ".join(allowed))
        return found

    def whole(self, column: str, low: int, high: int) -> int:
        """A whole number within limits."""
        try:
            value = int(self.cells[column])
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise self._refused(column, f"whole numbers from {low} to {high}")
        return value

    def fraction(self, column: str) -> float:
        """A number from 0 to 1."""
        try:
            value = float(self.cells[column])
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise self._refused(column, "numbers between 0 and 1")
        return value

    def _refused(self, column: str, allowed: str) -> InputError:
        value = shown(self.cells[column])
        return InputError(
            f"{self.path}: line {self.number}: {column} is {value}; allowed: {allowed}"
        )


def read_lines(
    path: Path, columns: tuple[str, ...], hint: str = "", later: tuple[str, ...] = ()
) -> list[Line]:
    """Rows of a CSV table with exactly these columns.

    hint: said where the file is missing.
    later: the last columns, which a table of an older version may lack.

    Raises:
        InputError: missing, cut short, or another table.
    """
    try:
        text = path.read_bytes().decode()
        table = list(csv.reader(io.StringIO(text), strict=True))
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing{hint}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: not a CSV table in UTF-8") from None
    found = tuple(table[0]) if table else ()
    if found == columns[: len(columns) - len(later)]:
        columns = found
    if found != columns:
        raise InputError(
            f"{path}: columns are {shown(', '.join(found))}; allowed: {', '.join(columns)}"
        )
    if not text.endswith("\n"):
        raise InputError(f"{path}: ends in the middle of a line; the file is not whole")
    for number, cells in enumerate(table[1:], 2):
        if len(cells) != len(columns):
            raise InputError(
                f"{path}: line {number} has {len(cells)} cells; allowed: {len(columns)}"
            )
    return [
        Line(path, number, dict(zip(columns, cells, strict=True)))
        for number, cells in enumerate(table[1:], 2)
    ]
