"""Registration of Little-Zoo as a world."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

import numpy as np

from magellan.worlds.base import Environment, GoalSet, World, register_world
from magellan.worlds.little_zoo import play, texts
from magellan.worlds.little_zoo.codes import KINDS_OF_GOALS, Mix, category_totals, kinds_of
from magellan.worlds.little_zoo.env import LittleZooVector
from magellan.worlds.little_zoo.goals import (
    NAME,
    GoalSpace,
    canonical_name,
    draw_codes,
    named_goal,
    parse_goal_space,
)
from magellan.worlds.little_zoo.texts import ZooParts


@register_world
class LittleZooWorld(World):
    """The text world of Gaven et al. 2025."""

    name = NAME
    label = "Little-Zoo"
    categories = KINDS_OF_GOALS
    parts = ZooParts()

    def parse(self, name: str) -> Mix:
        return parse_goal_space(name)

    def canonical(self, name: str) -> str:
        return canonical_name(name)

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

    def texts(self) -> Iterator[Mapping[str, str]]:
        return texts.groups()

    def longest(self) -> Sequence[tuple[str, str]]:
        return texts.longest()

    def named_goal(self, words: str, objects: Sequence[str]) -> GoalSet:
        return named_goal(words, objects)

    def play(
        self,
        goal_space: str,
        seed: int,
        category: str | None,
        stream_in: TextIO,
        stream_out: TextIO,
    ) -> bool:
        return play.play(goal_space, seed, category, stream_in, stream_out)
