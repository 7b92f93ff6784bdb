"""The interface of worlds: categories, goal spaces, environments, and optional parts.

A goal is identified by its position in a `GoalSet`, and by its code, an integer that means the same
goal in every set of its split.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, TextIO, TypeVar

import numpy as np

from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.registry import NAME, Registry

SPLITS = ("train", "unseen")
"""Training goals, and goals that no run trains on. Every world has both."""

NOTHING = -1
"""`standing_on` of an episode with the default start, the only one in most worlds."""


@dataclass(frozen=True)
class Category:
    """A category of goals.

    Attributes:
        name: in tables.
        feasible: whether its goals can be reached; others are not evaluated.
        label: in figures; empty: derived from the name.
        color: in figures, `#RRGGBB`; empty: a spare one.
    """

    name: str
    feasible: bool = True
    label: str = ""
    color: str = ""

    @property
    def words(self) -> str:
        """Its label in figures and printed tables."""
        return self.label or self.name.replace("_", " ").capitalize()


class Categories(tuple[Category, ...]):
    """The categories of a world, in order: a goal's category is a position here."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(category.name for category in self)

    @property
    def feasible(self) -> tuple[str, ...]:
        """Names of the feasible categories."""
        return tuple(category.name for category in self if category.feasible)

    @property
    def can_succeed(self) -> np.ndarray:
        """Whether each category is feasible: bool (categories,)."""
        return np.array([category.feasible for category in self], dtype=bool)

    def named(self, name: str) -> Category:
        """The category of this name; InputError if there is none."""
        for category in self:
            if category.name == name:
                return category
        raise InputError(f"category = {name!r}: allowed are {', '.join(self.names)}")


class GoalSet(ABC):
    """A set of goals of one split, by position 0..n-1; a goal's code determines it.

    split: "train" or "unseen".
    """

    def __init__(self, world: World, split: str) -> None:
        self.world, self.split = world, split

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def codes_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the codes of the goals at `positions`: int64 (n,)."""

    @abstractmethod
    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the categories (places in `Categories`) of goals at `positions`: integers (n,)."""

    @property
    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Number of goals of each category: int64 (categories,)."""

    @abstractmethod
    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        """Return positions of a category's goals by rank 0..size-1 among them: int64 (n,)."""

    @abstractmethod
    def goal(self, position: int) -> Any:
        """Return the goal at this position, in the form that the environment takes."""

    @abstractmethod
    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        """Return the prompt at the start of an episode.

        standing_on: the kind of start, in worlds with several.
        """

    def positions_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the positions of goals by code, -1 where absent: int64 (n,)."""
        own = self.codes_at(np.arange(len(self)))
        order = np.argsort(own)
        positions = order[np.minimum(np.searchsorted(own[order], codes), len(own) - 1)]
        return np.where(own[positions] == codes, positions, -1)

    def positions_in(self, other: GoalSet, positions: np.ndarray) -> np.ndarray:
        """Return the positions here of goals of another set, -1 where absent: int64 (n,).

        other: of the same world; splits share no goals.
        positions: int64 (n,), in `other`.
        """
        if other.split != self.split:
            return np.full(len(positions), -1)
        return self.positions_of(other.codes_at(positions))

    @property
    def feasible(self) -> np.ndarray:
        """Whether each category is feasible: bool (categories,)."""
        return self.world.categories.can_succeed

    def counts(self) -> dict[str, int]:
        """Return the number of goals of each category."""
        return dict(zip(self.world.categories.names, self.sizes.tolist(), strict=True))


class ListedGoals(GoalSet):
    """Goals stored one by one.

    indices: int64 (n,), their codes, without duplicates.
    categories: int64 (n,), positions in `Categories`.
    """

    def __init__(
        self, world: World, indices: np.ndarray, categories: np.ndarray, split: str = "train"
    ) -> None:
        super().__init__(world, split)
        self.indices = np.asarray(indices, dtype=np.int64)
        self.categories = np.asarray(categories, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def codes_at(self, positions: np.ndarray) -> np.ndarray:
        return self.indices[positions]

    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        return self.categories[positions]

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.categories, minlength=len(self.world.categories))

    @cached_property
    def _by_category(self) -> np.ndarray:
        return np.argsort(self.categories, kind="stable")

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        return self._by_category[int(self.sizes[:category].sum()) + ranks]


def draw_ranks(
    mix: Sequence[int], totals: Sequence[int], seed: int, split: str
) -> list[np.ndarray]:
    """Draw `mix` of the ranks 0..total-1 of each category, without replacement: int64 (n,) each.

    Each category has its own random stream, so changing one count does not change the goals of the
    others.
    """
    streams = np.random.SeedSequence([seed, SPLITS.index(split)]).spawn(len(totals))
    return [
        np.random.default_rng(stream).choice(total, size=count, replace=False)
        for stream, total, count in zip(streams, totals, mix, strict=True)
    ]


class Environment(Protocol):
    """A vector of episodes, without automatic reset.

    All randomness comes from the environment's own generator, which `reset` seeds.
    """

    @property
    def possible_actions(self) -> Sequence[Sequence[str]]:
        """Possible actions of each environment, at least one: (num_envs,)."""

    def prompts(self) -> list[str]:
        """Prompts for the language model: (num_envs,)."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes.

        options: `reset_mask`, bool (num_envs,), selects the environments to reset (default all);
            `goals`, from `GoalSet.goal`, has one for each of these.

        Returns observations and infos; worlds with several kinds of start have `standing_on`, int8
        (num_envs,), in infos.
        """

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Do one action in each environment: observations, rewards, terminated, truncated, infos.

        actions: int (num_envs,), positions in the possible actions; -1 skips an environment, with
            reward 0 and both flags false. A reward is 1 where the goal is reached, which ends the
            episode, otherwise 0. One that has ended takes -1 only, until it is reset.
        """

    def evaluation_env(self, num_envs: int) -> Environment:
        """Another environment of the world in its current state, for evaluation episodes."""

    def state_dict(self) -> dict[str, Any]:
        """All mutable state, as numpy arrays and JSON-serialisable values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""


class PromptParts(ABC):
    """First prompts of episodes as sequences of parts from a small set.

    If a tokenizer splits each part alone as it does within a prompt, it need not read the prompts;
    `trial` has the goals whose prompts test this.
    """

    @abstractmethod
    def texts(self) -> list[str]:
        """All parts."""

    @abstractmethod
    def of(self, goals: GoalSet, positions: np.ndarray) -> np.ndarray:
        """Parts of the prompts of goals at `positions` (n,), in order: int64 (n, parts)."""

    @abstractmethod
    def trial(self, split: str) -> GoalSet:
        """Goals whose prompts cover every pair of adjacent parts."""


class World(ABC):
    """A text world, a singleton without state of a run.

    name: in configurations.
    label: in messages and pages.
    categories: of its goals.
    parts: the parts of its prompts; None: the tokenizer reads each prompt.
    answer_tokens: the most tokens of an answer, in a world whose agent writes one to each prompt
        and has no environment; 0: in others.
    """

    name: str
    label: str
    categories: Categories
    parts: PromptParts | None = None
    answer_tokens: int = 0

    @property
    def source(self) -> str:
        """File that defines it."""
        return inspect.getfile(type(self))

    @abstractmethod
    def parse(self, name: str) -> tuple[int, ...]:
        """Return the number of goals per category in the training goal space of this name.

        InputError, naming `goal_space`, if the name is invalid.
        """

    def canonical(self, name: str) -> str:
        """Return the canonical name of a goal space: letters, digits, dots, dashes."""
        self.parse(name)
        return name

    @abstractmethod
    def goals(self, name: str, seed: int, split: str = "train") -> GoalSet:
        """Draw the goal space of this name, determined by the seed."""

    @abstractmethod
    def unseen(self, per_category: int, seed: int) -> GoalSet:
        """Draw up to `per_category` unseen goals of each category, grouped by category."""

    @abstractmethod
    def environment(self, num_envs: int) -> Environment:
        """Return an environment of `num_envs` parallel episodes."""

    def is_right(self, goal: Any, answer: str) -> bool:
        """Whether an answer reaches a `GoalSet.goal`, in worlds with `answer_tokens`."""
        raise NotImplementedError

    def totals(self, split: str) -> tuple[int, ...] | None:
        """Return the total number of goals per category; None if unknown."""
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return name and categories, for an analysis without the file that defines the world."""
        return {"name": self.name, "categories": [asdict(c) for c in self.categories]}

    def kinds(self, goals: GoalSet, positions: np.ndarray) -> list[str]:
        """Return the kinds of the goals at `positions` (n,), as labels for figures: (n,).

        By default categories; a world may have finer kinds, such as why a goal is impossible.
        """
        return [self.categories[category].words for category in goals.categories_at(positions)]

    def texts(self) -> Iterator[Mapping[str, str]]:
        """Yield groups of texts that a tokenizer must distinguish, by their meaning.

        Without any, every tokenizer is accepted, and run.log notes it.
        """
        return iter(())

    def longest(self) -> Sequence[tuple[str, str]]:
        """(prompt, action) pairs, among them the longest for any tokenizer; "" is no action.

        With them a model's scores, and how much it can read, are checked before a run.
        """
        return ()

    def named_goal(self, words: str, objects: Sequence[str]) -> GoalSet:
        """Return the goal that a user names, as a set of one.

        words: the goal.
        objects: the objects of the scene.

        InputError if there is no such goal, or the world does not support this.
        """
        raise InputError(
            f"--goal: {words!r} is not allowed: world {self.name!r} reads no goals in words; "
            "allowed: no --goal, so that one is drawn"
        )

    def play(
        self,
        goal_space: str,
        seed: int,
        category: str | None,
        stream_in: TextIO,
        stream_out: TextIO,
    ) -> bool:
        """Let a person play one episode in the terminal; return whether the goal was reached."""
        raise InputError(f"world = {self.name!r}: it cannot be played in a terminal")


WORLDS: Registry[World] = Registry("world")

DEFAULT_WORLD = "little_zoo"
"""World of a configuration without the key."""

LABEL = re.compile(r"[A-Za-z0-9 .,()/_-]{0,34}")
COLOR = re.compile(r"(#[0-9A-Fa-f]{6})?")

WorldT = TypeVar("WorldT", bound=World)


def register_world(kind: type[WorldT]) -> type[WorldT]:
    """Register a subclass of `World` (decorator), so that configurations can name it."""
    world = kind()
    _check_categories(world)
    WORLDS.add(world)
    return kind


def _check_categories(world: World) -> None:
    """Check names, labels and colours, which go into tables, pages and figures, and totals."""
    names = world.categories.names
    for category in world.categories:
        for key, pattern, allowed in (
            ("name", NAME, "lower-case letters, digits and underscores, a letter first"),
            ("label", LABEL, "up to 34 letters, digits, spaces and .,()/_-"),
            ("color", COLOR, "#RRGGBB"),
        ):
            value = getattr(category, key)
            if not pattern.fullmatch(value):
                raise InputError(
                    f"world {world.name}: {key} {shown(value)} of a category is not allowed; "
                    f"allowed: {allowed}"
                )
    if len(set(names)) < len(names) or not world.categories.feasible:
        raise InputError(
            f"world {world.name}: categories are {', '.join(names)}; allowed: unique names, and "
            "at least one feasible"
        )
    for split in SPLITS:
        totals = world.totals(split)
        if totals is not None and (len(totals) != len(names) or min(totals) < 0):
            raise not_allowed(
                f"world {world.name}: totals", totals, "a number of goals for each category"
            )
        if totals is not None and not any(
            n for n, category in zip(totals, world.categories, strict=True) if category.feasible
        ):
            raise not_allowed(
                f"world {world.name}: totals of {split!r}", totals, "goals of a feasible category"
            )


def describe(world: World, name: str, seed: int, split: str = "train") -> str:
    """Return the counts of a goal space and one example prompt for each of its categories."""
    goals, totals = world.goals(name, seed, split), world.totals(split)
    lines = [f"Goal space {name}, {split} split, seed {seed}: {len(goals):,} goals", ""]
    lines.append(f"{'category':16}{'goals':>10}" + (f"{'of':>14}" if totals else ""))
    counts = [*goals.counts().items(), ("total", len(goals))]
    for row, (category, count) in enumerate(counts):
        of = f"{(*totals, sum(totals))[row]:>14,}" if totals else ""
        lines.append(f"{category:16}{count:>10,}{of}")
    for number in np.flatnonzero(goals.sizes).tolist():
        first = goals.nth(number, np.array([0]))[0]
        example = goals.prompt(int(first)).rstrip()
        lines += ["", f"Example of {world.categories[number].name}:", example]
    return "\n".join(lines)
