"""The goals of a curriculum: their texts, groups and keys."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.parsing import plain
from magellan.curriculum.answers import numbers
from magellan.worlds import Categories
from magellan.worlds.texts import Texts

SINGLE_GROUP = "all"
"""Name of the group of all goals if none are given."""


def check_names(argument: str, names: Any, ordered: bool = True) -> None:
    """Check that these are names: not an iterator, and a set or a mapping only if not `ordered`."""
    listed = isinstance(names, Collection) and not isinstance(names, str)
    if ordered and isinstance(names, set | frozenset | Mapping):
        listed = False
    if not listed or not all(isinstance(name, str) for name in names):
        raise not_allowed(argument, names, "a list of names")


class Goals:
    """Texts, numbers of groups, and keys or None, each (n,); `extend` appends to them."""

    def __init__(self, categories: Categories) -> None:
        self.categories = categories
        self.texts: list[str] = []
        self.numbers: list[int] = []
        self.keys: list[str | None] = []

    def __len__(self) -> int:
        return len(self.texts)

    def world(self) -> Texts:
        """The world of these goals."""
        return Texts(self.texts, np.array(self.numbers), self.categories)

    def truncate(self, n: int) -> None:
        """Drop all but the first n goals."""
        for values in (self.texts, self.numbers, self.keys):
            del values[n:]
        vars(self).pop("_names", None)

    @functools.cached_property
    def _names(self) -> tuple[Counter[str | None], dict[str | None, int]]:
        """Number of goals with each text or key, and the row of one."""
        pairs = {pair for names in (self.texts, self.keys) for pair in enumerate(names)}
        return Counter(name for _, name in pairs), {name: row for row, name in pairs}

    def rows(self, indices: Any) -> np.ndarray:
        """Rows (m,) int64 of goals given by row, text or key."""
        allowed = f"0 to {len(self) - 1}, or the texts or keys of goals"
        if indices is None:
            raise not_allowed("indices", indices, allowed)
        single = isinstance(indices, str | int) or getattr(indices, "ndim", 1) == 0
        listed: Any = [indices] if single else indices
        if any(isinstance(name, str) for name in listed):
            named, rows = self._names
            for name in listed:
                if not isinstance(name, str):
                    both = f"{shown(name)} stands beside names"
                    raise InputError(f"indices: {both}; allowed: all rows, or all names")
                if named[name] != 1:
                    which = f"a name of {named[name]} goals" if named[name] else "not a goal"
                    raise InputError(f"indices: {shown(name)} is {which}; allowed: {allowed}")
            return np.array([rows[name] for name in listed], dtype=np.int64)
        goals = numbers("indices", listed)
        wrong = ~((goals >= 0) & (goals < len(self)) & (goals == np.trunc(goals)))
        given = np.asarray(plain(listed)).reshape(-1)
        if wrong.any() or given.dtype == bool:
            raise not_allowed("indices", given.tolist()[int(wrong.argmax())], allowed)
        return goals.astype(np.int64)

    def extend(
        self, goals: Sequence[str], groups: Sequence[str] | None, keys: Sequence[str] | None
    ) -> None:
        """Validate and append goals, their groups and their keys.

        Raises:
            InputError: these are no goals, groups or keys, or not as many.
        """
        for argument, given in (("goals", goals), ("groups", groups), ("keys", keys)):
            if given is not None or argument == "goals":
                check_names(argument, given)
        if not len(goals):
            raise InputError("goals: none are given; allowed: a list of names")
        places = {name: place for place, name in enumerate(self.categories.names)}
        group_names = [SINGLE_GROUP] * len(goals) if groups is None else list(groups)
        unknown = [name for name in group_names if name not in places]
        if len(group_names) != len(goals) or unknown:
            allowed = f"one for each of {len(goals)} goals, of {', '.join(places)}"
            raise not_allowed("groups", unknown or len(group_names), allowed)
        if keys is not None and not (len(keys) == len(goals) == len(set(keys) - {*self.keys})):
            raise not_allowed("keys", list(keys), f"another name for each of {len(goals)} goals")
        self.keys += [None] * len(goals) if keys is None else map(str, keys)
        self.texts += map(str, goals)
        self.numbers += [places[name] for name in group_names]
        vars(self).pop("_names", None)
