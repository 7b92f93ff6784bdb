"""Little-Zoo, the text world of Gaven et al. 2025: rules, goal spaces, environments. No torch."""

import gymnasium

from magellan.worlds.little_zoo.codes import CATEGORIES, FEASIBLE, category_totals
from magellan.worlds.little_zoo.env import LittleZoo, LittleZooVector
from magellan.worlds.little_zoo.goals import Goal, GoalSpace, WholeSpace, parse_goal_space

# Importing it registers the world.
from magellan.worlds.little_zoo import registration  # noqa: F401  # isort: skip

__all__ = [
    "CATEGORIES",
    "FEASIBLE",
    "Goal",
    "GoalSpace",
    "LittleZoo",
    "LittleZooVector",
    "WholeSpace",
    "category_totals",
    "parse_goal_space",
]

gymnasium.register(
    id="LittleZoo-v0",
    entry_point="magellan.worlds.little_zoo.env:LittleZoo",
    vector_entry_point="magellan.worlds.little_zoo.env:LittleZooVector",
)
