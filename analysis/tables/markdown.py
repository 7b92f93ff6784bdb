"""Tables that commands print, in Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


class Table(NamedTuple):
    """A table to read: caption, column names, and rows of as many cells."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def printed(tables: Iterable[Table], form: str = "markdown", note: str = "") -> str:
    """Tables as text that ends with a line break, with an empty line between two.

    Args:
        tables: what to print.
        form: a key of `FORMATS`.
        note: a sentence above them; empty for none.
    """
    say, show = FORMATS[form]
    parts = [say(note)] if note else []
    return "\n\n".join([*parts, *map(show, tables)]) + "\n"


def titled(table: Table) -> str:
    """A table in Markdown under its bold caption."""
    return "\n".join([f"**{table.caption}**", "", *head(table.columns), *map(row, table.rows)])


def head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table in Markdown."""
    return [row(names), "|" + "---|" * len(names)]


def row(cells: Sequence[str]) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def commented(table: Table) -> str:
    """A table as CSV (RFC 4180) under its caption, which is a comment: `# ...`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return f"{_comment(table.caption)}\n{text.getvalue()}".rstrip("\n")


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def tabular(table: Table) -> str:
    """A table in LaTeX, for the package booktabs; columns of numbers stand on the right."""
    numbers = [all(_is_number(cell) for cell in column) for column in zip(*table.rows, strict=True)]
    places = "".join("r" if right else "l" for right in numbers) or "l" * len(table.columns)
    lines = [" & ".join(cell.translate(LATEX) for cell in line) + r" \\" for line in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{table.caption.translate(LATEX)}}}",
            rf"\begin{{tabular}}{{{places}}}",
            r"\toprule",
            " & ".join(name.translate(LATEX) for name in table.columns) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"(n/a|(< )?[-+]?[0-9.,]+%?)?", cell) is not None


Form = tuple[Callable[[str], str], Callable[[Table], str]]
FORMATS: Mapping[str, Form] = {
    "markdown": (lambda text: text, titled),
    "csv": (_comment, commented),
    "latex": (lambda text: f"% {' '.join(text.split())}", tabular),
}
"""How a sentence and a table are written, by name."""
