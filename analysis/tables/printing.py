"""Tables as Markdown, CSV or LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd


class Table(NamedTuple):
    """A table of texts: caption, column names, rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def render(tables: Iterable[Table], form: str = "markdown", note: str = "") -> str:
    """Tables as text in a form of `FORMATS`, separated by empty lines, below a note."""
    format_note, format_table = FORMATS[form]
    parts = [format_note(note)] if note else []
    return "\n\n".join([*parts, *map(format_table, tables)]) + "\n"


def to_markdown(table: Table) -> str:
    """A table in Markdown under its bold caption."""
    return "\n".join([f"**{table.caption}**", "", *head(table.columns), *map(row, table.rows)])


def head(names: Sequence[str]) -> list[str]:
    """Header and separator of a table in Markdown."""
    return [row(names), "|" + "---|" * len(names)]


def row(cells: Sequence[str]) -> str:
    """One row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def interval_cell(low: float, high: float, form: str = "+.3f") -> str:
    """An interval as a cell; its bounds are NaN where so few runs have none."""
    return "none: too few runs" if low != low else f"{low:{form}} to {high:{form}}"


def _frame(table: Table) -> pd.DataFrame:
    return pd.DataFrame(list(table.rows), columns=list(table.columns))


def to_csv(table: Table) -> str:
    """A table as CSV under its caption as a comment: `# ...`."""
    text = _frame(table).to_csv(index=False, lineterminator="\n")
    return f"{_comment(table.caption)}\n{text}".rstrip("\n")


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def to_latex(table: Table) -> str:
    """A table in LaTeX with booktabs; columns but the first are right-aligned."""
    columns = "l" + "r" * (len(table.columns) - 1)
    caption = re.sub(r"([&%$#_{}])", r"\\\1", table.caption)
    text = _frame(table).to_latex(index=False, escape=True, column_format=columns, caption=caption)
    return text.translate(LATEX).rstrip("\n")


LATEX = str.maketrans({"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"})
"""Signs that pandas does not escape."""
Form = tuple[Callable[[str], str], Callable[[Table], str]]
FORMATS: Mapping[str, Form] = {
    "markdown": (lambda text: text, to_markdown),
    "csv": (_comment, to_csv),
    "latex": (lambda text: f"% {' '.join(text.split())}", to_latex),
}
"""Functions that format a note and a table, by name of the format."""


def short(value: float, digits: int = 2) -> str:
    """A number of at most 1 in size without its leading zero: `.23`, `-.05`, `1.00`."""
    text = f"{value:.{digits}f}"
    text = text.replace("-0.", "-.", 1) if text.startswith("-") else text.removeprefix("0")
    return text.removeprefix("-") if float(text) == 0.0 else text


LEVEL = 0.05
"""Significance level."""


def chance(p: float) -> str:
    """A p value: `.048`, `< .001`, empty if NaN; with digits that show the side of `LEVEL`."""
    if p != p or p < 0.001:
        return "" if p != p else "< .001"
    sides = (digits for digits in range(3, 17) if (round(p, digits) < LEVEL) == (p < LEVEL))
    return short(p, next(sides, 3))


def p_equals(p: float) -> str:
    """A p value in a sentence: `p = .048`, `p < .001`."""
    return f"p {chance(p)}" if p < 0.001 else f"p = {chance(p)}"
