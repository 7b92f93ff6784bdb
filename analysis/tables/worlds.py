"""The categories of the world that runs were made in.

A world is known by its registry. Where the file that adds it is not at hand, the manifest of a run
says what its categories are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magellan.core.errors import InputError, shown
from magellan.worlds import DEFAULT_WORLD, WORLDS, Categories, Category

INFEASIBLE = "#BBBBBB"
# Okabe and Ito's, in the order of the categories of the default world.
SPARE_COLORS = ("#56B4E9", "#F0E442", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00")


def categories_of(manifest: Mapping[str, Any]) -> Categories:
    """Categories of the world of a run.

    Args:
        manifest: of the run, checked.

    Raises:
        InputError: neither a registry nor the manifest knows the world.
    """
    name = manifest["config"].get("world", DEFAULT_WORLD)
    if name in WORLDS:
        return WORLDS[name].categories
    told = manifest.get("world") or {}
    if told.get("name") != name:
        raise InputError(
            f"world: {shown(name)} is unknown, and the run does not say its categories; allowed: "
            f"{', '.join(WORLDS)}"
        )
    return Categories(
        Category(**{key: each[key] for key in ("name", "feasible", "label", "color")})
        for each in told["categories"]
    )


def category_colors(categories: Categories) -> dict[str, str]:
    """Colours of categories by name; those without one take spare ones in turn."""
    used = {category.color for category in categories}
    spare = [color for color in SPARE_COLORS if color not in used] or list(SPARE_COLORS)
    colors: dict[str, str] = {}
    for category in categories:
        color = category.color or ("" if category.feasible else INFEASIBLE)
        colors[category.name] = color or spare[0]
        if not color:
            spare = [*spare[1:], spare[0]]
    return colors
