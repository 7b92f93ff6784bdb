"""Tables as Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from magellan.core.files import write_atomically

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
    """A table of texts: caption, column names, rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def render(tables: Iterable[Table], form: str = "markdown", note: str = "") -> str:
    """Tables as text, separated by empty lines.

    Args:
        tables: tables to print.
        form: a key of `FORMATS`.
        note: a sentence above them; may be empty.
    """
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
    return "| " + " | ".join(cells) + " |"


def interval_cell(low: float, high: float, form: str = "+.3f") -> str:
    """An interval as a cell; its bounds are NaN where so few runs have none."""
    return "none: too few runs" if low != low else f"{low:{form}} to {high:{form}}"


def to_csv(table: Table) -> str:
    """A table as CSV (RFC 4180) under its caption as a comment: `# ...`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return f"{_comment(table.caption)}\n{text.getvalue()}".rstrip("\n")


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def to_latex(table: Table) -> str:
    """A table in LaTeX with booktabs; columns of numbers are right-aligned."""
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*table.rows, strict=True)]
    alignment = "".join("r" if right else "l" for right in numeric) or "l" * len(table.columns)
    lines = [" & ".join(cell.translate(LATEX) for cell in line) + r" \\" for line in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{table.caption.translate(LATEX)}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
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
    "markdown": (lambda text: text, to_markdown),
    "csv": (_comment, to_csv),
    "latex": (lambda text: f"% {' '.join(text.split())}", to_latex),
}
"""Functions that format a note and a table, by name of the format."""


# --- self-contained HTML pages for the report ---


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font-family: sans-serif; line-height: 1.45; margin: 1.5em; color: #222; background: #fff; }}
main {{ max-width: 60em; margin: 0 auto; }}
table {{ border-collapse: collapse; margin: 0.6em 0 1.8em; }}
th, td {{ padding: 0.35em 0.9em; border-bottom: 1px solid #ddd; text-align: left; }}
caption {{ text-align: left; font-weight: bold; padding-bottom: 0.4em; }}
.table {{ overflow-x: auto; }}
figure {{ margin: 1em 0 2.5em; }}
figcaption {{ font-size: 0.9em; color: #444; }}
.picture {{ overflow-x: auto; }}
img {{ width: 100%; min-width: 44em; }}
.found {{ font-size: 1.15em; }}
@media (max-width: 40em) {{
  body {{ margin: 0.8em; }}
  ul {{ padding-left: 1.2em; }}
  table {{ font-size: 0.85em; }}
  th, td {{ padding: 0.3em 0.5em; vertical-align: top; }}
}}
</style></head><body>
{body}
</body></html>
"""


def page(title: str, tables: Iterable[Table], note: str = "") -> str:
    """A page of tables below an optional note."""
    parts = [element("p", note)] if note else []
    return document(title, [*parts, *map(table, tables)])


def document(title: str, parts: Iterable[str]) -> str:
    """A page from parts that are HTML."""
    return PAGE.format(title=html.escape(title), body="\n".join(parts))


def element(tag: str, text: str) -> str:
    """A text in an element."""
    return f"<{tag}>{html.escape(text)}</{tag}>"


def items(texts: Iterable[str], kind: str = "") -> str:
    """A list of texts; empty without any.

    kind: CSS class of the list.
    """
    entries = "\n".join(element("li", text) for text in texts)
    name = f' class="{html.escape(kind)}"' if kind else ""
    return f"<ul{name}>\n{entries}\n</ul>" if entries else ""


def figure(picture: bytes, alternative: str, caption: str) -> str:
    """A PNG picture embedded in the page.

    Args:
        picture: content of the PNG file.
        alternative: alternative text.
        caption: HTML below it.
    """
    data = base64.b64encode(picture).decode()
    image = f'<img alt="{html.escape(alternative)}" src="data:image/png;base64,{data}">'
    return f'<figure><div class="picture">{image}</div><figcaption>{caption}</figcaption></figure>'


def table(content: Table) -> str:
    """A table, which scrolls sideways in a narrow window."""
    head = "".join(element("th", name) for name in content.columns)
    head = f"<tr>{head}</tr>\n" if any(content.columns) else ""
    body = "\n".join(
        "<tr>" + "".join(element("td", cell) for cell in row) + "</tr>" for row in content.rows
    )
    caption = element("caption", content.caption) if content.caption else ""
    return f'<div class="table"><table>{caption}\n{head}{body}\n</table></div>'


def write(text: str, path: Path) -> None:
    """Write a page atomically; creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


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
