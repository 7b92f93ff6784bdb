"""Worlds by name."""

from __future__ import annotations

from typing import TypeVar

from magellan.registry import Registry
from magellan.worlds.base import World

WORLDS: Registry[World] = Registry("world")

DEFAULT_WORLD = "little_zoo"
"""World of a configuration that names none."""

WorldT = TypeVar("WorldT", bound=World)


def register_world(kind: type[WorldT]) -> type[WorldT]:
    """Decorator of a subclass of `World`: its name can then stand in configurations."""
    WORLDS.add(kind())
    return kind
