"""Pages of tables for the report: plain HTML, nothing loaded from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from magellan.training.record import write_atomically

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 1.5em; color: #222; background: #fff; }}
table {{ border-collapse: collapse; margin: 0.6em 0 1.8em; }}
th, td {{ padding: 0.35em 0.9em; border-bottom: 1px solid #ddd; text-align: left; }}
caption {{ text-align: left; font-weight: bold; padding-bottom: 0.4em; }}
</style></head><body>
{body}
</body></html>
"""


class Table(NamedTuple):
    """A table to read: caption, column names, and rows of as many cells."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def page(title: str, tables: Iterable[Table], note: str = "") -> str:
    """A page of tables below an optional note."""
    parts = [f"<p>{html.escape(note)}</p>"] if note else []
    parts += [_table(table) for table in tables]
    return PAGE.format(title=html.escape(title), body="\n".join(parts))


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f"<table><caption>{html.escape(table.caption)}</caption>\n<tr>{head}</tr>\n{body}\n</table>"
    )


def write(text: str, path: Path) -> None:
    """Write a page, whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
