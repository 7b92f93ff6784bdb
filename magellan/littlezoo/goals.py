"""Goal spaces by index: a goal of Little-Zoo is a whole number, its text is made when asked for.

A training goal has the code ((target * 2 + verb) * 25^4) + scene, with the scene read as four
digits in base 25: 25 targets, 2 verbs, 390,625 scenes, 19,531,250 goals. A goal with a held-out
object ("unseen") has that object as its target and as o1: 12 targets, 2 verbs, 15,625 remainders
o2..o4, 375,000 goals (Gaven et al. 2025, generalisation test).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from magellan.errors import InputError
from magellan.littlezoo import text, world
from magellan.littlezoo.vocabulary import (
    CARNIVORE,
    FOOD_OF,
    HELD_OUT_OBJECTS,
    HERBIVORE,
    KIND_OF,
    NUM_TRAIN,
    OBJECTS,
    PLANT,
    object_id,
)
from magellan.littlezoo.world import GRASP, GROW, NOTHING, SCENE_SIZE, VERBS

CATEGORIES = ("impossible", "grasp", "grow_plant", "grow_herbivore", "grow_carnivore")
FEASIBLE = CATEGORIES[1:]
IMPOSSIBLE = 0

PROPORTIONS = (0.8, 0.16, 0.032, 0.0064, 0.00128)
"""Share of each category in the 25k, 50k, 100k goal spaces of Gaven et al. 2025; sum 0.99968."""

Mix = tuple[int, ...]
"""Number of goals of each of the five categories, in the order of `CATEGORIES`."""

_CATEGORY_OF_KIND = {PLANT: 2, HERBIVORE: 3, CARNIVORE: 4}


@dataclass(frozen=True)
class Goal:
    """One goal: "Grow lion", the four objects of its scene, and its category."""

    text: str
    objects: tuple[str, ...]
    category: str


@dataclass(frozen=True)
class Split:
    """The raw space of one split.

    targets: ids of the target objects, the first digit of a code.
    free: number of scene positions that are free; the target takes o1 where this is 3.
    """

    name: str
    targets: tuple[int, ...]
    free: int

    @property
    def scenes(self) -> int:
        """Number of scenes per target and verb."""
        return NUM_TRAIN**self.free

    @property
    def size(self) -> int:
        """Number of goals."""
        return len(self.targets) * len(VERBS) * self.scenes


SPLITS = {
    "train": Split("train", tuple(range(NUM_TRAIN)), SCENE_SIZE),
    "unseen": Split("unseen", tuple(object_id(name) for name in HELD_OUT_OBJECTS), SCENE_SIZE - 1),
}


def find_split(name: str) -> Split:
    """Return the split of this name; `InputError` if there is none."""
    if name not in SPLITS:
        raise InputError(f"split = {name!r}: allowed are {', '.join(SPLITS)}")
    return SPLITS[name]


def decode(codes: np.ndarray, split: str = "train") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return verbs (n,), target ids (n,) and scenes (n, 4) of goal codes (n,)."""
    space = find_split(split)
    codes = np.asarray(codes, dtype=np.int64)
    target_and_verb, scene = np.divmod(codes, space.scenes)
    digits, verbs = np.divmod(target_and_verb, len(VERBS))
    targets = np.asarray(space.targets)[digits]
    powers = NUM_TRAIN ** np.arange(space.free - 1, -1, -1)
    scenes = scene[:, None] // powers % NUM_TRAIN
    if space.free < SCENE_SIZE:
        scenes = np.concatenate([targets[:, None], scenes], axis=1)
    return verbs, targets, scenes


@cache
def _scene_contents(free: int) -> np.ndarray:
    """Bit mask of the training types in each scene of `free` positions: uint32 (25^free,)."""
    bits = (1 << np.arange(NUM_TRAIN)).astype(np.uint32)
    contents = np.zeros(1, dtype=np.uint32)
    for _ in range(free):
        contents = (contents[:, None] | bits).ravel()
    return contents


def _mask_of_kind(kind: int) -> np.uint32:
    return np.uint32(sum(1 << o for o in range(NUM_TRAIN) if KIND_OF[o] == kind))


def _feasible(target: int, verb: int, contents: np.ndarray) -> np.ndarray:
    """Say for each scene whether the goal can be reached: bool (n,).

    The target must be there (a held-out one always is) and, to grow it, all the food below it.

    contents: bit masks of the training types in the scenes, (n,).
    """
    possible = np.ones(contents.shape, dtype=bool)
    if target < NUM_TRAIN:
        possible &= (contents >> np.uint32(target)) & np.uint32(1) == 1
    if verb == GROW:
        possible &= KIND_OF[target] in FOOD_OF
        kind = FOOD_OF.get(KIND_OF[target])
        while kind is not None:
            possible &= (contents & _mask_of_kind(kind)) != 0
            kind = FOOD_OF.get(kind)
    return possible


def _category_if_feasible(target: int, verb: int) -> int:
    return 1 if verb == GRASP else _CATEGORY_OF_KIND.get(KIND_OF[target], IMPOSSIBLE)


def _families(space: Split) -> Iterator[tuple[int, int, np.ndarray]]:
    """Go through targets and verbs: (first code, category if feasible, feasible (scenes,))."""
    contents = _scene_contents(space.free)
    for digit, target in enumerate(space.targets):
        for verb in range(len(VERBS)):
            first = (digit * len(VERBS) + verb) * space.scenes
            yield first, _category_if_feasible(target, verb), _feasible(target, verb, contents)


def categories_of(codes: np.ndarray, split: str = "train") -> np.ndarray:
    """Return the category of each goal code (n,), as int8 positions in `CATEGORIES`."""
    space = find_split(split)
    family, scene = np.divmod(np.asarray(codes, dtype=np.int64), space.scenes)
    contents = _scene_contents(space.free)[scene]
    categories = np.zeros(len(family), dtype=np.int8)
    for which in np.unique(family):
        digit, verb = divmod(int(which), len(VERBS))
        target, rows = space.targets[digit], np.flatnonzero(family == which)
        possible = _feasible(target, verb, contents[rows])
        categories[rows[possible]] = _category_if_feasible(target, verb)
    return categories


@cache
def _totals(split: str) -> Mix:
    space = find_split(split)
    totals = [0] * len(CATEGORIES)
    for _, category, possible in _families(space):
        totals[category] += int(np.count_nonzero(possible))
    totals[IMPOSSIBLE] = space.size - sum(totals[1:])
    return tuple(totals)


def category_totals(split: str = "train") -> dict[str, int]:
    """Return how many goals of each category the split holds."""
    return dict(zip(CATEGORIES, _totals(split), strict=True))


def parse_goal_space(name: str, split: str = "train") -> Mix:
    """Return how many goals of each of the `CATEGORIES` a goal space of this name has.

    "25k", "50k", "100k", "2.5k" or "2500": that size in the proportions of Gaven et al. 2025, each
    count rounded, so that 25k is 20000/4000/800/160/32. "1000-400-200-100-50": an explicit mix.

    Raises:
        InputError: another form, a size too small to have every category, a mix that is empty or
            asks for more goals than a category has.
    """
    sized = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(k?)", name) if isinstance(name, str) else None
    if sized:
        size = float(sized[1]) * (1000 if sized[2] else 1)
        mix = tuple(int(size * share + 0.5) for share in PROPORTIONS)
        if not size.is_integer() or min(mix) == 0:
            raise InputError(
                f"goal_space = {name!r}: allowed are whole sizes of at least 391 (less has no "
                "carnivore goal), or a mix such as 1000-400-200-100-50"
            )
    elif isinstance(name, str) and re.fullmatch(r"\d{1,9}(-\d{1,9}){4}", name):
        mix = tuple(int(count) for count in name.split("-"))
    else:
        raise InputError(
            f"goal_space = {name!r}: allowed are sizes such as 25k, 50k, 100k, 2500, or a mix "
            f"such as 1000-400-200-100-50 ({', '.join(CATEGORIES)})"
        )
    _check_mix(name, mix, split)
    return mix


def _check_mix(name: str, mix: Mix, split: str) -> None:
    if len(mix) != len(CATEGORIES) or min(mix) < 0 or sum(mix) == 0:
        raise InputError(
            f"goal_space = {name!r}: allowed are five counts >= 0, at least one > 0 "
            f"({', '.join(CATEGORIES)})"
        )
    for category, wanted, available in zip(CATEGORIES, mix, _totals(split), strict=True):
        if wanted > available:
            raise InputError(
                f"goal_space = {name!r}: {wanted} {category} goals, allowed are at most "
                f"{available} ({split} split)"
            )


def _members(space: Split, wanted: frozenset[int]) -> dict[int, np.ndarray]:
    """Return the sorted codes of all goals of these feasible categories."""
    codes: dict[int, list[np.ndarray]] = {category: [] for category in wanted}
    for first, category, possible in _families(space):
        if category in wanted:
            codes[category].append(np.flatnonzero(possible) + first)
    return {category: np.concatenate(parts) for category, parts in codes.items()}


def _draw_impossible(
    space: Split, feasible: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw impossible goals without writing down the 18 million there are: int64 (count,).

    Drawn are ranks among the impossible codes; a code is its rank plus the number of feasible codes
    before it.

    feasible: sorted codes of all feasible goals.
    """
    ranks = rng.choice(space.size - len(feasible), size=count, replace=False)
    impossible_before = feasible - np.arange(len(feasible))
    return ranks + np.searchsorted(impossible_before, ranks, side="right")


def draw_codes(mix: Mix, seed: int, split: str = "train") -> np.ndarray:
    """Draw codes uniformly without replacement inside each category: int64 (sum of mix,).

    Codes of the first category come first. Each category has its own random stream, so changing
    one count leaves the goals of the others as they are.
    """
    space = find_split(split)
    _check_mix("-".join(map(str, mix)), mix, split)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed = {seed!r}: allowed are whole numbers >= 0")
    streams = np.random.SeedSequence([seed, list(SPLITS).index(split)]).spawn(len(CATEGORIES))
    needed = range(1, len(CATEGORIES)) if mix[IMPOSSIBLE] else np.flatnonzero(mix)
    members = _members(space, frozenset(int(category) for category in needed))
    drawn = []
    for category, count in enumerate(mix):
        rng = np.random.default_rng(streams[category])
        if count == 0:
            continue
        if category == IMPOSSIBLE:
            feasible = np.sort(np.concatenate(list(members.values())))
            drawn.append(_draw_impossible(space, feasible, count, rng))
        else:
            drawn.append(rng.choice(members[category], size=count, replace=False))
    return np.concatenate(drawn).astype(np.int64)


class GoalSpace:
    """A set of goals, known by position 0..n-1.

    indices: int64 (n,), codes in the raw space of the split.
    categories: int8 (n,), positions in `CATEGORIES`.
    """

    def __init__(self, indices: np.ndarray, split: str = "train") -> None:
        self.split = find_split(split).name
        self.indices = np.asarray(indices, dtype=np.int64)
        if np.any((self.indices < 0) | (self.indices >= SPLITS[split].size)):
            raise InputError(
                f"indices of the {split} split: allowed are codes 0..{SPLITS[split].size - 1}"
            )
        self.categories = categories_of(self.indices, split)
        verbs, targets, scenes = decode(self.indices, split)
        self._verbs, self._targets = verbs.astype(np.int8), targets.astype(np.int8)
        self._scenes = scenes.astype(np.int8)

    @classmethod
    def draw(cls, mix: Mix, seed: int, split: str = "train") -> "GoalSpace":
        """Draw goals uniformly without replacement inside each category; grouped by category."""
        return cls(draw_codes(mix, seed, split), split)

    @classmethod
    def named(cls, name: str, seed: int, split: str = "train") -> "GoalSpace":
        """Draw the goal space of this name, see `parse_goal_space`."""
        return cls.draw(parse_goal_space(name, split), seed, split)

    def __len__(self) -> int:
        return len(self.indices)

    def _numbers(self, position: int) -> tuple[int, int, world.Scene]:
        scene = tuple(self._scenes[position].tolist())
        return int(self._verbs[position]), int(self._targets[position]), scene

    def goal(self, position: int) -> Goal:
        """Return the goal at this position."""
        verb, target, scene = self._numbers(position)
        return Goal(
            text=world.goal_text(verb, target),
            objects=tuple(OBJECTS[o] for o in scene),
            category=CATEGORIES[self.categories[position]],
        )

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        """Return the prompt at the start of an episode, on object `standing_on` (-1: nothing)."""
        verb, target, scene = self._numbers(position)
        return text.initial_prompt(world.goal_text(verb, target), scene, standing_on)

    def members(self, category: str) -> np.ndarray:
        """Return the positions of the goals of a category: int64."""
        if category not in CATEGORIES:
            raise InputError(f"category = {category!r}: allowed are {', '.join(CATEGORIES)}")
        return np.flatnonzero(self.categories == CATEGORIES.index(category))

    def counts(self) -> dict[str, int]:
        """Return the number of goals of each category."""
        numbers = np.bincount(self.categories, minlength=len(CATEGORIES))
        return dict(zip(CATEGORIES, numbers.tolist(), strict=True))


def describe(name: str, seed: int, split: str = "train") -> str:
    """Return the counts of a goal space and one example prompt for each of its categories."""
    goals = GoalSpace.named(name, seed, split)
    totals = category_totals(split)
    lines = [f"Goal space {name}, {split} split, seed {seed}: {len(goals):,} goals", ""]
    lines.append(f"{'category':16}{'goals':>10}{'of':>14}")
    for category, count in goals.counts().items():
        lines.append(f"{category:16}{count:>10,}{totals[category]:>14,}")
    lines.append(f"{'total':16}{len(goals):>10,}{sum(totals.values()):>14,}")
    for category in CATEGORIES:
        members = goals.members(category)
        if len(members):
            lines += ["", f"Example of {category}:", goals.prompt(int(members[0])).rstrip()]
    return "\n".join(lines)
