"""Worlds by name."""

from __future__ import annotations

import re
from typing import TypeVar

from magellan.core.errors import InputError, shown
from magellan.core.registry import NAME, Registry
from magellan.worlds.base import World

WORLDS: Registry[World] = Registry("world")

DEFAULT_WORLD = "little_zoo"
"""World of a configuration that names none."""

LABEL = re.compile(r"[A-Za-z0-9 .,()/_-]{0,34}")
COLOR = re.compile(r"(#[0-9A-Fa-f]{6})?")

WorldT = TypeVar("WorldT", bound=World)


def register_world(kind: type[WorldT]) -> type[WorldT]:
    """Decorator of a subclass of `World`: its name can then stand in configurations."""
    world = kind()
    _check_categories(world)
    WORLDS.add(world)
    return kind


def _check_categories(world: World) -> None:
    """Names, labels and colours go into tables, pages and figures."""
    names = world.categories.names
    for each in world.categories:
        for key, rule, words in (
            ("name", NAME, "lower-case letters, digits and underscores, a letter first"),
            ("label", LABEL, "up to 34 letters, digits, spaces and .,()/_-"),
            ("color", COLOR, "#RRGGBB"),
        ):
            if not rule.fullmatch(getattr(each, key)):
                raise InputError(
                    f"world {world.name}: {key} {shown(getattr(each, key))} of a category is not "
                    f"allowed; allowed: {words}"
                )
    if len(set(names)) < len(names) or not world.categories.feasible:
        raise InputError(
            f"world {world.name}: categories are {', '.join(names)}; allowed: each name once, and "
            "one that is feasible"
        )
