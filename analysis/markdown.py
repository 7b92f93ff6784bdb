"""Tables that commands print."""

from __future__ import annotations

from collections.abc import Sequence


def titled(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells under a bold title."""
    return "\n".join([f"**{title}**", "", *head(header), *map(row, rows)])


def head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [row(names), "|" + "---|" * len(names)]


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"
