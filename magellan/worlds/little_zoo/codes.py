"""The raw goal spaces of Little-Zoo: every goal is an integer code, which determines its category.

A training goal has the code ((target * 2 + verb) * 25^4) + scene, with the scene read as four
digits in base 25: 25 targets, 2 verbs, 390,625 scenes, 19,531,250 goals. A goal with a held-out
object ("unseen") has that object as its target and as o1: 12 targets, 2 verbs, 15,625 remainders
o2..o4, 375,000 goals (Gaven et al. 2025, generalisation test).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from magellan.core.errors import InputError
from magellan.worlds.base import Categories, Category
from magellan.worlds.little_zoo.dynamics import GRASP, SCENE_SIZE, VERBS, Scene
from magellan.worlds.little_zoo.vocabulary import (
    CARNIVORE,
    FOOD_OF,
    HELD_OUT_OBJECTS,
    HERBIVORE,
    KIND_OF,
    KINDS,
    NUM_TRAIN,
    OBJECTS,
    PLANT,
    SUPPLY,
    object_id,
)

KINDS_OF_GOALS = Categories(
    [
        Category("impossible", feasible=False, color="#BBBBBB"),
        Category("grasp", color="#56B4E9"),
        Category("grow_plant", color="#F0E442"),
        Category("grow_herbivore", color="#E69F00"),
        Category("grow_carnivore", color="#CC79A7"),
    ]
)
CATEGORIES = KINDS_OF_GOALS.names
FEASIBLE = KINDS_OF_GOALS.feasible
IMPOSSIBLE = 0

NEVER_GROWS, NOT_THERE, SEVERAL = "target never grows", "target not there", "several missing"
"""Why goals are impossible; others lack one element, as in "no water"."""

Mix = tuple[int, ...]
"""Number of goals of each of the five categories, in the order of `CATEGORIES`."""

_CATEGORY_OF_KIND = {PLANT: 2, HERBIVORE: 3, CARNIVORE: 4}
_ANYTHING = (1 << NUM_TRAIN) - 1
_REQUIREMENTS = 4
"""Maximum requirements of a goal on its scene: the target and three kinds of food below it."""


@dataclass(frozen=True)
class Split:
    """The raw space of one split.

    targets: ids of the target objects, the first digit of a code.
    free: number of free scene positions; 3: the target takes o1.
    """

    name: str
    targets: tuple[int, ...]
    free: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each digit of a code: target, verb, free objects of the scene."""
        return len(self.targets), len(VERBS), *[NUM_TRAIN] * self.free

    @property
    def scenes(self) -> int:
        """Number of scenes per target and verb."""
        return NUM_TRAIN**self.free

    @property
    def size(self) -> int:
        """Number of goals."""
        return math.prod(self.shape)


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
    digits, verbs, *free = np.unravel_index(codes, space.shape)
    targets = np.asarray(space.targets)[digits]
    fixed = [targets] * (SCENE_SIZE - space.free)
    return verbs, targets, np.column_stack([*fixed, *free])


def encode_one(verb: int, target: int, scene: Scene) -> tuple[str, int]:
    """Return split and code of one goal.

    Raises:
        InputError: it is in no split.
    """
    for space in SPLITS.values():
        rest = scene[SCENE_SIZE - space.free :]
        fixed = scene[: SCENE_SIZE - space.free]
        if target in space.targets and max(rest) < NUM_TRAIN and set(fixed) <= {target}:
            digits = space.targets.index(target), verb, *rest
            return space.name, int(np.ravel_multi_index(digits, space.shape))
    raise InputError(
        f"goal = {VERBS[verb] + ' ' + OBJECTS[target]!r}, objects = "
        f"{[OBJECTS[o] for o in scene]!r}: not a goal of this world; allowed are a training "
        f"object with training objects, or a held-out object ({', '.join(HELD_OUT_OBJECTS)}) that "
        "is the first of the objects, before training objects"
    )


@cache
def _scene_contents(free: int) -> np.ndarray:
    """Bit mask of the training types in each scene of `free` positions: uint32 (25^free,)."""
    bits = (1 << np.arange(NUM_TRAIN)).astype(np.uint32)
    contents = np.zeros(1, dtype=np.uint32)
    for _ in range(free):
        contents = (contents[:, None] | bits).ravel()
    return contents


def _requirements(target: int, verb: int) -> list[int]:
    """Bit masks of training types; a goal is feasible if the scene has an object of each mask.

    The scene needs the target (a held-out one is always in it) and, to grow it, its food chain.
    """
    masks = [1 << target] if target < NUM_TRAIN else []
    if verb != GRASP:
        kind = FOOD_OF.get(KIND_OF[target])
        masks += [] if kind is not None else [0]
        while kind is not None:
            masks.append(sum(1 << o for o in range(NUM_TRAIN) if KIND_OF[o] == kind))
            kind = FOOD_OF.get(kind)
    return masks + [_ANYTHING] * (_REQUIREMENTS - len(masks))


@cache
def _families(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Category if feasible, int8 (families,), and requirements, uint32 (families, 4).

    A family is a target and verb, the first part of a code: code // scenes.
    """
    pairs = [(target, verb) for target in find_split(split).targets for verb in range(len(VERBS))]
    categories = [
        1 if verb == GRASP else _CATEGORY_OF_KIND.get(KIND_OF[target], IMPOSSIBLE)
        for target, verb in pairs
    ]
    requirements = [_requirements(*pair) for pair in pairs]
    return np.array(categories, dtype=np.int8), np.array(requirements, dtype=np.uint32)


def categories_of(codes: np.ndarray, split: str = "train") -> np.ndarray:
    """Return the category of each goal code (n,), as int8 positions in `CATEGORIES`."""
    space = find_split(split)
    family, scene = np.divmod(np.asarray(codes, dtype=np.int64), space.scenes)
    categories, requirements = _families(split)
    contents = _scene_contents(space.free)[scene]
    feasible = (contents[:, None] & requirements[family] != 0).all(axis=1)
    return np.where(feasible, categories[family], np.int8(IMPOSSIBLE))


def kinds_of(codes: np.ndarray, split: str = "train") -> list[str]:
    """Return a label for each goal, (n,): its category, or why it is impossible."""
    verbs, targets, scenes = decode(codes, split)
    goals = zip(verbs.tolist(), targets.tolist(), scenes.tolist(), strict=True)
    reasons = [_why_impossible(*goal) for goal in goals]
    categories = categories_of(codes, split).tolist()
    return [
        reason or KINDS_OF_GOALS[category].words
        for reason, category in zip(reasons, categories, strict=True)
    ]


def _why_impossible(verb: int, target: int, scene: list[int]) -> str:
    """Return why a goal is impossible; empty if it is feasible."""
    kind = KIND_OF[target]
    if verb != GRASP and kind not in FOOD_OF:
        return NEVER_GROWS
    if target not in scene:
        return NOT_THERE
    if verb == GRASP:
        return ""
    kinds = {KIND_OF[o] for o in scene}
    missing = []
    while (kind := FOOD_OF.get(kind, -1)) >= 0:
        if kind not in kinds:
            missing.append("water" if kind == SUPPLY else KINDS[kind])
    if not missing:
        return ""
    return f"no {missing[0]}" if len(missing) == 1 else SEVERAL


class Members:
    """The goals of a split by category and rank, without storing the 18 million impossible ones.

    An impossible code is its rank plus the number of feasible codes before it. 25 MB (train).
    """

    def __init__(self, split: str) -> None:
        space = find_split(split)
        contents = _scene_contents(space.free)
        parts: list[list[np.ndarray]] = [[] for _ in CATEGORIES]
        for family, (category, masks) in enumerate(zip(*_families(split), strict=True)):
            feasible = np.logical_and.reduce([contents & mask != 0 for mask in masks])
            parts[category].append(np.flatnonzero(feasible) + family * space.scenes)
        self._codes = [np.concatenate(part) for part in parts[1:]]
        codes = np.sort(np.concatenate(self._codes))
        self._impossible_before = codes - np.arange(len(codes))
        counts = [len(part) for part in self._codes]
        self.totals: Mix = (space.size - sum(counts), *counts)
        """Number of goals of each category."""

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        """Return the codes at these ranks 0..total-1 of the sorted codes of a category."""
        if category == IMPOSSIBLE:
            return ranks + np.searchsorted(self._impossible_before, ranks, side="right")
        return self._codes[category - 1][ranks]


@cache
def members_of(split: str = "train") -> Members:
    """Return the goals of a split by category, the same object each time."""
    return Members(split)


def category_totals(split: str = "train") -> dict[str, int]:
    """Return the number of goals per category of the split."""
    return dict(zip(CATEGORIES, members_of(split).totals, strict=True))
