"""Draw who imports whom, from the code: docs/layers.svg. `python workflow/scripts/draw_layers.py`.

Boxes are packages and modules of `magellan` and `analysis`. One stands above all that it imports,
directly or not; boxes that import each other are an error. A line that follows from others (A
imports B, B imports C, A imports C) is left out. Where all imports stand inside functions, and so
happen when they are needed, it is dashed. Imports that only type checkers see are not drawn.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "layers.svg"
PARTS = ("magellan", "analysis")
SMALL = {"magellan.core"}
"""Used by nearly all; drawn as the ground that everything stands on."""

Graph = dict[str, set[str]]

BOX_HEIGHT, ROW, GAP, LETTER, MARGIN = 34, 78, 18, 8.2, 20


def imports(path: Path, late: bool = True) -> Iterator[str]:
    """Modules that a file imports; without `late` only those when it is imported itself."""
    for node in _executed(ast.parse(path.read_text(encoding="utf-8")), late):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _executed(tree: ast.AST, late: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not late:
            continue
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed(node, late)


def graph(late: bool = True) -> Graph:
    """Box -> the boxes that it imports; `late` as in `imports`."""
    edges: Graph = {}
    for path in sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py")):
        box = _box_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if box.count(".") == 1 and not box.endswith("__"):
            targets = {_box_of(name) for name in imports(path, late)} - {box}
            edges.setdefault(box, set()).update(targets)
    return {box: targets & edges.keys() for box, targets in edges.items()}


def _box_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def levels(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Boxes by the longest way down from them: first those that import nothing.

    Raises:
        graphlib.CycleError: boxes import each other, directly or not.
    """
    order = TopologicalSorter(edges)
    order.prepare()
    found = []
    while order.is_active():
        found.append(sorted(order.get_ready()))
        order.done(*found[-1])
    return found


def condensed(edges: Mapping[str, set[str]]) -> Graph:
    """The graph without the lines that follow from others."""
    below: Graph = {}
    for box in TopologicalSorter(edges).static_order():
        below[box] = edges[box].union(*(below[target] for target in edges[box]))
    return {
        box: {to for to in targets if not any(to in below[other] for other in targets)}
        for box, targets in edges.items()
    }


def to_svg(edges: Graph, early: Graph) -> str:
    """The picture: highest level on top, the ground at the bottom; dashed what is not `early`."""
    drawn = {box: targets - SMALL for box, targets in edges.items() if box not in SMALL}
    rows = levels(drawn)[::-1]
    widths = {box: LETTER * len(_short(box)) + 24 for box in drawn}
    spans = [sum(widths[box] for box in row) + GAP * (len(row) - 1) for row in rows]
    width = max(*spans, 560) + 2 * MARGIN
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - spans[number]) / 2
        for box in row:
            place[box] = left, MARGIN + number * ROW
            left += widths[box] + GAP
    ground = MARGIN + len(rows) * ROW - 20
    height = ground + BOX_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for box, targets in sorted(condensed(drawn).items()):
        for to in sorted(targets):
            x, y = place[box][0] + widths[box] / 2, place[box][1] + BOX_HEIGHT
            to_x, to_y = place[to][0] + widths[to] / 2, place[to][1]
            bend = (y + to_y) / 2
            dashes = "" if to in early.get(box, set()) else ' stroke-dasharray="5 4"'
            parts.append(
                f'<path d="M{x:.0f} {y:.0f} C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} '
                f'{to_x:.0f} {to_y:.0f}" fill="none" stroke="#8a8a8a"{dashes}/>'
            )
    for box, (x, y) in sorted(place.items()):
        fill = "#fdf1dc" if box.startswith("analysis") else "#e3eef9"
        parts.append(_rectangle(x, y, widths[box], _short(box), fill))
    everywhere = f"used everywhere: {', '.join(sorted(map(_short, SMALL & edges.keys())))}"
    parts.append(_rectangle(MARGIN, ground, width - 2 * MARGIN, everywhere, "#eeeeee"))
    return "\n".join([*parts, "</svg>", ""])


def _short(box: str) -> str:
    return box.removeprefix("magellan.")


def _rectangle(x: float, y: float, width: float, text: str, fill: str) -> str:
    middle = f'x="{x + width / 2:.0f}" y="{y + BOX_HEIGHT / 2 + 5:.0f}"'
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="#555555"/>'
        f'<text {middle} text-anchor="middle" fill="#111111">{text}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(to_svg(graph(), graph(late=False)), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")
