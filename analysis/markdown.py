"""Tables that commands print."""

from __future__ import annotations

from collections.abc import Sequence


def titled(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells under a bold title."""
    lines = [f"**{title}**", "", row(header), "|" + "---|" * len(header), *map(row, rows)]
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"
