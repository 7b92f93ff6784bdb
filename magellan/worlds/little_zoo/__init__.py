"""Little-Zoo, the text world of Gaven et al. 2025: rules, goal spaces, environments. No torch."""

import gymnasium
import numpy as np

from magellan.worlds.base import Environment, GoalSet, World, register_world
from magellan.worlds.little_zoo.codes import (
    CATEGORIES,
    FEASIBLE,
    KINDS_OF_GOALS,
    Mix,
    category_totals,
    kinds_of,
)
from magellan.worlds.little_zoo.env import LittleZoo, LittleZooVector
from magellan.worlds.little_zoo.goals import (
    NAME,
    Goal,
    GoalSpace,
    WholeSpace,
    canonical_name,
    draw_codes,
    named_goal,
    parse_goal_space,
)
from magellan.worlds.little_zoo.play import play
from magellan.worlds.little_zoo.texts import ZooParts, groups, longest

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


@register_world
class LittleZooWorld(World):
    """The text world of Gaven et al. 2025."""

    name = NAME
    label = "Little-Zoo"
    categories = KINDS_OF_GOALS
    parts = ZooParts()

    parse = staticmethod(parse_goal_space)
    canonical = staticmethod(canonical_name)
    named_goal = staticmethod(named_goal)
    texts = staticmethod(groups)
    longest = staticmethod(longest)
    play = staticmethod(play)

    def goals(self, name: str, seed: int, split: str = "train") -> GoalSet:
        return GoalSpace.named(name, seed, split)

    def unseen(self, per_category: int, seed: int) -> GoalSet:
        mix = tuple(min(per_category, total) for total in self.totals("unseen"))
        return GoalSpace(draw_codes(mix, seed, "unseen"), "unseen")

    def environment(self, num_envs: int) -> Environment:
        return LittleZooVector(num_envs)

    def totals(self, split: str) -> Mix:
        return tuple(category_totals(split).values())

    def kinds(self, goals: GoalSet, positions: np.ndarray) -> list[str]:
        return kinds_of(goals.codes_at(positions), goals.split)
