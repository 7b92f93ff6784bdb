"""Goal spaces: sets of goals by position, stored as codes; texts are rendered on demand.

Codes and their categories are in `magellan.worlds.little_zoo.codes`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from magellan.core.errors import InputError
from magellan.core.parsing import is_whole
from magellan.worlds.base import NOTHING, WORLDS, GoalSet, ListedGoals, draw_ranks
from magellan.worlds.listed import in_proportion, shortest_name, size_named
from magellan.worlds.little_zoo import dynamics, text
from magellan.worlds.little_zoo.codes import (
    CATEGORIES,
    Mix,
    categories_of,
    category_totals,
    decode,
    encode_one,
    find_split,
    members_of,
)
from magellan.worlds.little_zoo.vocabulary import OBJECTS, object_id

NAME = "little_zoo"

PROPORTIONS = (0.8, 0.16, 0.032, 0.0064, 0.00128)
"""Share of each category in the 25k, 50k, 100k goal spaces of Gaven et al. 2025; sum 0.99968."""

WHOLE = "all"
"""Name of the goal space with every goal of a split."""


@dataclass(frozen=True)
class Goal:
    """One goal: "Grow lion", the four objects of its scene, and its category."""

    text: str
    objects: tuple[str, ...]
    category: str


def parse_goal_space(name: str, split: str = "train") -> Mix:
    """Return the number of goals per category in the goal space of this name.

    "25k", "50k", "100k", "1M", "2.5k" or "2500": that size in the proportions of Gaven et al. 2025,
    each count rounded, so that 25k is 20000/4000/800/160/32. "1000-400-200-100-50": an explicit
    mix. "all": every goal of the split.

    Raises:
        InputError: another form, a size too small for every category, a mix that is empty or
            has more goals than a category (the largest size of the training split is 1.29M,
            limited by grow_plant).
    """
    if name == WHOLE:
        return tuple(category_totals(split).values())
    size = size_named(name)
    if size is not None:
        mix = in_proportion(size, PROPORTIONS)
        if not size.is_integer() or min(mix) == 0:
            raise InputError(
                f"goal_space = {name!r}: allowed are whole sizes of at least 391 (less has no "
                "carnivore goal), or a mix such as 1000-400-200-100-50"
            )
    elif isinstance(name, str) and re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9}){4}", name):
        mix = tuple(int(count) for count in name.split("-"))
    else:
        raise InputError(
            f"goal_space = {name!r}: allowed are sizes such as 25k, 50k, 100k, 1M, 2500, all, or a "
            f"mix such as 1000-400-200-100-50 ({', '.join(CATEGORIES)})"
        )
    _check_mix(name, mix, split)
    return mix


def canonical_name(name: str) -> str:
    """Canonical name of a goal space: 25k for 25000, 25.0k and 20000-4000-800-160-32.

    Raises:
        InputError: see `parse_goal_space`.
    """
    mix = parse_goal_space(name)
    if name == WHOLE or mix == tuple(category_totals("train").values()):
        return WHOLE
    return shortest_name(mix, PROPORTIONS)


def _check_mix(name: str, mix: Mix, split: str) -> None:
    if len(mix) != len(CATEGORIES) or min(mix) < 0 or sum(mix) == 0:
        raise InputError(
            f"goal_space = {name!r}: allowed are five counts >= 0, at least one > 0 "
            f"({', '.join(CATEGORIES)})"
        )
    for count, (category, available) in zip(mix, category_totals(split).items(), strict=True):
        if count > available:
            raise InputError(
                f"goal_space = {name!r}: {count} {category} goals, allowed are at most "
                f"{available} ({split} split); the whole split is all"
            )


def draw_codes(mix: Mix, seed: int, split: str = "train") -> np.ndarray:
    """Draw codes uniformly without replacement inside each category: int64 (sum of mix,).

    Grouped by category.

    Raises:
        InputError: an invalid mix, seed or split.
    """
    _check_mix("-".join(map(str, mix)), mix, split)
    if not is_whole(seed, 0):
        raise InputError(f"seed = {seed!r}: allowed are whole numbers >= 0")
    members = members_of(split)
    ranks = draw_ranks(mix, members.totals, seed, split)
    return np.concatenate([members.nth(*drawn) for drawn in enumerate(ranks)])


class ZooGoals(GoalSet):
    """Goals of Little-Zoo, decoded from their codes."""

    def goal(self, position: int) -> Goal:
        """Return the goal at this position."""
        verb, target, scene = self._decode(position)
        return Goal(
            text=dynamics.goal_text(verb, target),
            objects=tuple(OBJECTS[o] for o in scene),
            category=CATEGORIES[int(self.categories_at(np.array([position]))[0])],
        )

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        """Return the prompt at the start of an episode, on object `standing_on` (-1: nothing)."""
        verb, target, scene = self._decode(position)
        return text.initial_prompt(dynamics.goal_text(verb, target), scene, standing_on)

    def _decode(self, position: int) -> tuple[int, int, dynamics.Scene]:
        verbs, targets, scenes = decode(self.codes_at(np.array([position])), self.split)
        return int(verbs[0]), int(targets[0]), tuple(scenes[0].tolist())


class GoalSpace(ZooGoals, ListedGoals):
    """Goals stored one by one.

    indices: int64 (n,), codes in the raw space of the split.
    categories: int64 (n,), positions in `CATEGORIES`.
    """

    def __init__(self, indices: np.ndarray, split: str = "train") -> None:
        size = find_split(split).size
        indices = np.asarray(indices, dtype=np.int64)
        if np.any((indices < 0) | (indices >= size)):
            raise InputError(f"indices of the {split} split: allowed are codes 0..{size - 1}")
        super().__init__(WORLDS[NAME], indices, categories_of(indices, split), split)

    @staticmethod
    def draw(mix: Mix, seed: int, split: str = "train") -> GoalSet:
        """Draw goals uniformly without replacement inside each category; grouped by category.

        A mix of all goals is the `WholeSpace`.
        """
        if tuple(mix) == members_of(split).totals:
            return WholeSpace(split)
        return GoalSpace(draw_codes(mix, seed, split), split)

    @staticmethod
    def named(name: str, seed: int, split: str = "train") -> GoalSet:
        """Draw the goal space of this name, see `parse_goal_space`."""
        return GoalSpace.draw(parse_goal_space(name, split), seed, split)


class WholeSpace(ZooGoals):
    """Every goal of a split; a goal's position is its code, so none is stored."""

    def __init__(self, split: str = "train") -> None:
        super().__init__(WORLDS[NAME], split)

    def __len__(self) -> int:
        return find_split(self.split).size

    def codes_at(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(positions, dtype=np.int64)

    def positions_of(self, codes: np.ndarray) -> np.ndarray:
        return np.where((codes >= 0) & (codes < len(self)), codes, -1)

    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        return categories_of(positions, self.split)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.array(members_of(self.split).totals)

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        return members_of(self.split).nth(category, ranks)


def named_goal(words: str, objects: Sequence[str]) -> GoalSpace:
    """Return the goal of this text, such as "Grow lion", with these four objects.

    Raises:
        InputError: an unknown goal or object, another number of objects, or a goal of no split.
    """
    verb, target = dynamics.parse_goal(words)
    if len(objects) != dynamics.SCENE_SIZE:
        raise InputError(
            f"objects = {list(objects)!r}: allowed are {dynamics.SCENE_SIZE} object types, as in "
            "lion water cow carrot"
        )
    scene = tuple(object_id(name, "objects") for name in objects)
    split, code = encode_one(verb, target, scene)
    return GoalSpace(np.array([code]), split)
