"""Text worlds that an agent practises in: categories, goal spaces, environments. No torch.

To add one, write a file with a registered class and list it under `modules` of an experiment, or
import it below.
"""

from __future__ import annotations

from magellan.worlds.base import (
    DEFAULT_WORLD,
    NOTHING,
    SPLITS,
    WORLDS,
    Categories,
    Category,
    Environment,
    GoalSet,
    ListedGoals,
    PromptParts,
    World,
    register_world,
)
from magellan.worlds.episodes import Episode
from magellan.worlds.listed import ListedWorld

# Importing a world registers it; names are listed in this order.
from magellan.worlds import little_zoo, simulated, craft, digits  # noqa: F401  # isort: skip

__all__ = [
    "DEFAULT_WORLD",
    "NOTHING",
    "SPLITS",
    "WORLDS",
    "Categories",
    "Category",
    "Environment",
    "Episode",
    "GoalSet",
    "ListedGoals",
    "ListedWorld",
    "PromptParts",
    "World",
    "register_world",
]
