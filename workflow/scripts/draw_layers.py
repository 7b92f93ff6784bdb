"""Draw the import graph of the code, docs/layers.svg: `python workflow/scripts/draw_layers.py`.

Boxes are packages and modules of `magellan` and `analysis`. A box is above everything that it
imports, directly or not; cycles are an error. The graph is transitively reduced (no line A to C if
A imports B and B imports C). A line is dashed if all its imports are inside functions. Imports for
type checking only are not drawn.
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
"""Used by nearly all; drawn as one bar at the bottom."""

Graph = dict[str, set[str]]

BOX_HEIGHT, ROW, GAP, LETTER, MARGIN = 34, 78, 18, 8.2, 20


def imports(path: Path, late: bool = True) -> Iterator[str]:
    """Modules that a file imports; without `late`, only imports outside functions."""
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
    """Boxes by their longest path downwards, first those that import nothing.

    Raises:
        graphlib.CycleError: boxes import each other, directly or not.
    """
    order = TopologicalSorter(edges)
    order.prepare()
    rows = []
    while order.is_active():
        rows.append(sorted(order.get_ready()))
        order.done(*rows[-1])
    return rows


def reduced(edges: Mapping[str, set[str]]) -> Graph:
    """The transitive reduction of a graph."""
    below: Graph = {}
    for box in TopologicalSorter(edges).static_order():
        below[box] = edges[box].union(*(below[target] for target in edges[box]))
    return {
        box: {target for target in targets if not any(target in below[t] for t in targets)}
        for box, targets in edges.items()
    }


def to_svg(edges: Graph, early: Graph) -> str:
    """The picture, highest level on top; edges that are not in `early` are dashed."""
    drawn = {box: targets - SMALL for box, targets in edges.items() if box not in SMALL}
    rows = levels(drawn)[::-1]
    widths = {box: LETTER * len(_short(box)) + 24 for box in drawn}
    spans = [sum(widths[box] for box in row) + GAP * (len(row) - 1) for row in rows]
    width = max(*spans, 560) + 2 * MARGIN
    position: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - spans[number]) / 2
        for box in row:
            position[box] = left, MARGIN + number * ROW
            left += widths[box] + GAP
    ground = MARGIN + len(rows) * ROW - 20
    height = ground + BOX_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for box, targets in sorted(reduced(drawn).items()):
        for to in sorted(targets):
            x, y = position[box][0] + widths[box] / 2, position[box][1] + BOX_HEIGHT
            to_x, to_y = position[to][0] + widths[to] / 2, position[to][1]
            bend = (y + to_y) / 2
            dashes = "" if to in early.get(box, set()) else ' stroke-dasharray="5 4"'
            parts.append(
                f'<path d="M{x:.0f} {y:.0f} C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} '
                f'{to_x:.0f} {to_y:.0f}" fill="none" stroke="#8a8a8a"{dashes}/>'
            )
    for box, (x, y) in sorted(position.items()):
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
