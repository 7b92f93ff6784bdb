"""Draw who imports whom, from the code: docs/layers.svg. `python workflow/scripts/draw_layers.py`.

Boxes are packages and modules of `magellan` and `analysis`. One stands above all that it imports,
directly or not. A line that follows from others (A imports B, B imports C, A imports C) is left
out. Where all imports stand inside functions, and so happen when they are needed, it is dashed.
Imports that only type checkers see are not drawn.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from html import escape
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


def box_of(module: str) -> str | None:
    """The box that a module is drawn in; None for the outside and for the package itself."""
    parts = module.split(".")
    if parts[0] not in PARTS:
        return None
    return ".".join(parts[:2]) if len(parts) > 1 else None


def graph(late: bool = True) -> Graph:
    """Box -> the boxes that it imports; `late` as in `imports`."""
    found: Graph = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            box = box_of(module.removesuffix(".__init__"))
            if box is None or path.name == "__main__.py":
                continue
            mine = found.setdefault(box, set())
            mine |= {other for name in imports(path, late) if (other := box_of(name))} - {box}
    return {box: targets & found.keys() for box, targets in found.items()}


def groups(edges: Mapping[str, set[str]]) -> dict[str, str]:
    """Boxes that import each other, directly or not, share a name: box -> name of its group."""
    reach = {box: _reachable(edges, box) for box in edges}
    return {
        box: " + ".join(
            sorted({box, *(other for other in reach[box] if box in reach[other])}, key=str)
        )
        for box in edges
    }


def _reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def condensed(edges: Mapping[str, set[str]]) -> Graph:
    """The graph of groups, without the lines that follow from others."""
    name = groups(edges)
    merged: Graph = {group: set() for group in name.values()}
    for box, targets in edges.items():
        merged[name[box]] |= {name[target] for target in targets} - {name[box]}
    return {
        group: {
            target
            for target in targets
            if not any(target in _reachable(merged, other) for other in targets - {target})
        }
        for group, targets in merged.items()
    }


def levels(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """Longest way down from each group: 0 imports nothing."""
    known: dict[str, int] = {}

    def level(group: str) -> int:
        if group not in known:
            known[group] = 1 + max(map(level, edges[group]), default=-1)
        return known[group]

    return {group: level(group) for group in edges}


def short(group: str) -> str:
    """A group as its box says it."""
    return group.replace("magellan.", "")


def to_svg(edges: Graph, early: Graph) -> str:
    """The picture: highest level on top, the ground at the bottom; dashed what is not `early`."""
    name = groups({box: targets - SMALL for box, targets in edges.items() if box not in SMALL})
    at_once = {(name[box], name[to]) for box in name for to in early.get(box, set()) - SMALL}
    lines = condensed({box: targets - SMALL for box, targets in edges.items() if box not in SMALL})
    level = levels(lines)
    rows = [sorted(g for g in lines if level[g] == n) for n in range(max(level.values()), -1, -1)]
    widths = {group: LETTER * len(short(group)) + 24 for group in lines}
    spans = [sum(widths[g] for g in row) + GAP * (len(row) - 1) for row in rows]
    width = max(max(spans), 560) + 2 * MARGIN
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - spans[number]) / 2
        for group in row:
            place[group] = left, MARGIN + number * ROW
            left += widths[group] + GAP
    ground = MARGIN + len(rows) * ROW - 20
    height = ground + BOX_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for group, targets in sorted(lines.items()):
        for target in sorted(targets):
            x, y = place[group][0] + widths[group] / 2, place[group][1] + BOX_HEIGHT
            to_x, to_y = place[target][0] + widths[target] / 2, place[target][1]
            bend = (y + to_y) / 2
            dashes = "" if (group, target) in at_once else ' stroke-dasharray="5 4"'
            parts.append(
                f'<path d="M{x:.0f} {y:.0f} C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} '
                f'{to_x:.0f} {to_y:.0f}" fill="none" stroke="#8a8a8a"{dashes}/>'
            )
    for group, (x, y) in sorted(place.items()):
        fill = "#fdf1dc" if group.startswith("analysis") else "#e3eef9"
        parts.append(_box(x, y, widths[group], short(group), fill))
    everywhere = ", ".join(sorted(map(short, SMALL & edges.keys())))
    parts.append(
        _box(MARGIN, ground, width - 2 * MARGIN, f"used everywhere: {everywhere}", "#eeeeee")
    )
    return "\n".join([*parts, "</svg>", ""])


def _box(x: float, y: float, width: float, text: str, fill: str) -> str:
    middle = f'x="{x + width / 2:.0f}" y="{y + BOX_HEIGHT / 2 + 5:.0f}"'
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="#555555"/>'
        f'<text {middle} text-anchor="middle" fill="#111111">{escape(text)}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(to_svg(graph(), graph(late=False)), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")
