"""What a world must give: categories, goal spaces, environments; and what it may give beside that.

A goal is known by its position in a `GoalSet`, and by its code, a whole number that means the same
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

from magellan.core.errors import InputError, shown
from magellan.core.registry import NAME, Registry

SPLITS = ("train", "unseen")
"""Goals of training, and goals that no run trains on. Every world has both."""

NOTHING = -1
"""`standing_on` of an episode that starts as all do, and in worlds that know no other start."""


@dataclass(frozen=True)
class Category:
    """A category of goals.

    Attributes:
        name: in tables.
        feasible: whether its goals can be reached; the others are never played to evaluate.
        label: in figures; made from the name where it is empty.
        color: in figures, `#RRGGBB`; empty takes a spare one.
    """

    name: str
    feasible: bool = True
    label: str = ""
    color: str = ""

    @property
    def words(self) -> str:
        """What it is called in figures and tables to read."""
        return self.label or self.name.replace("_", " ").capitalize()


class Categories(tuple[Category, ...]):
    """The categories of a world, in order: a goal's category is a position here."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(category.name for category in self)

    @property
    def feasible(self) -> tuple[str, ...]:
        """Names of those whose goals can be reached."""
        return tuple(category.name for category in self if category.feasible)

    @property
    def can_succeed(self) -> np.ndarray:
        """Which of them are feasible: bool (categories,)."""
        return np.array([category.feasible for category in self], dtype=bool)

    def named(self, name: str) -> Category:
        """The category of this name; InputError if there is none."""
        for category in self:
            if category.name == name:
                return category
        raise InputError(f"category = {name!r}: allowed are {', '.join(self.names)}")


class GoalSet(ABC):
    """A set of goals of one split, known by position 0..n-1; what a goal is follows from its code.

    world: that the goals are of.
    split: "train" or "unseen".
    """

    def __init__(self, world: World, split: str) -> None:
        self.world, self.split = world, split

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def codes_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the codes of the goals there: int64 (n,)."""

    @abstractmethod
    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the categories, positions in `Categories`, of the goals there: int8 (n,)."""

    @property
    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Number of goals of each category: int64 (categories,)."""

    @abstractmethod
    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        """Return positions of a category's goals by rank 0..size-1 among them: int64 (n,)."""

    @abstractmethod
    def goal(self, position: int) -> Any:
        """Return the goal at this position, as the world's environment takes it."""

    @abstractmethod
    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        """Return the prompt at the start of an episode.

        standing_on: which start it is, where the world knows several.
        """

    def positions_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the positions of goals by code, -1 where there is none: int64 (n,)."""
        known = self.codes_at(np.arange(len(self)))
        order = np.argsort(known)
        where = order[np.minimum(np.searchsorted(known[order], codes), len(known) - 1)]
        return np.where(known[where] == codes, where, -1)

    def positions_in(self, other: GoalSet, positions: np.ndarray) -> np.ndarray:
        """Return where goals of another set stand in this one, -1 where they do not: int64 (n,).

        other: of the same world; goals of two splits are never the same.
        positions: int64 (n,), of goals in it.
        """
        if other.split != self.split:
            return np.full(len(positions), -1)
        return self.positions_of(other.codes_at(positions))

    @property
    def feasible(self) -> np.ndarray:
        """Which categories can be reached: bool (categories,)."""
        return self.world.categories.can_succeed

    def members(self, category: str) -> np.ndarray:
        """Return the positions of the goals of a category: int64, increasing."""
        number = self.world.categories.index(self.world.categories.named(category))
        return self.nth(number, np.arange(self.sizes[number]))

    def counts(self) -> dict[str, int]:
        """Return the number of goals of each category."""
        return dict(zip(self.world.categories.names, self.sizes.tolist(), strict=True))


class ListedGoals(GoalSet):
    """Goals written down one by one.

    indices: int64 (n,), their codes, each one once.
    categories: int8 (n,), positions in `Categories`.
    """

    def __init__(
        self, world: World, indices: np.ndarray, categories: np.ndarray, split: str = "train"
    ) -> None:
        super().__init__(world, split)
        self.indices = np.asarray(indices, dtype=np.int64)
        self.categories = np.asarray(categories, dtype=np.int8)

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


class Environment(Protocol):
    """Many episodes in step, without automatic reset.

    All randomness comes from the environment's own generator, which `reset` seeds.
    """

    @property
    def possible_actions(self) -> Sequence[Sequence[str]]:
        """What each environment can do now, at least one action: (num_envs,)."""

    def prompts(self) -> list[str]:
        """What the language model reads before the action: (num_envs,)."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes.

        options: `reset_mask`, bool (num_envs,), says which start anew (default all); `goals`, from
            `GoalSet.goal`, has one for each of these.

        Returns observations and infos; `standing_on` in infos, int8 (num_envs,), is left out by a
        world whose episodes all start alike.
        """

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Do one action in each environment: observations, rewards, terminated, truncated, infos.

        actions: int (num_envs,), positions in the possible actions; -1 leaves an environment as it
            is, with reward 0. A reward is 1 where the goal is reached, which ends the episode, and
            0 elsewhere.
        """

    def evaluation_env(self, num_envs: int) -> Environment:
        """Another environment of the world as it is now, for episodes that are no practice."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later, as numpy arrays and JSON-able values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""


class PromptParts(ABC):
    """Prompts at the start of episodes as rows of parts, of which there are few.

    Where a tokenizer reads each part alone as it reads it in the prompt, it need not read the
    prompts; `trial` has the prompts on which that is tried out.
    """

    @abstractmethod
    def texts(self) -> list[str]:
        """All parts."""

    @abstractmethod
    def of(self, goals: GoalSet, positions: np.ndarray) -> np.ndarray:
        """Parts of the prompts of goals at `positions` (n,), in order: int64 (n, parts)."""

    @abstractmethod
    def trial(self, split: str) -> GoalSet:
        """Goals in whose prompts every part stands beside every part that can follow it."""


class World(ABC):
    """A text world. There is one object of each; it holds no state of a run.

    name: in configurations.
    label: in messages and pages.
    categories: of its goals.
    parts: how prompts are put together; None: they are read one by one.
    """

    name: str
    label: str
    categories: Categories
    parts: PromptParts | None = None

    @property
    def source(self) -> str:
        """File that it comes from."""
        return inspect.getfile(type(self))

    @abstractmethod
    def parse(self, name: str) -> tuple[int, ...]:
        """Return how many goals of each category the training goal space of this name has.

        InputError, naming `goal_space`, if there is none such.
        """

    def canonical(self, name: str) -> str:
        """Return the one name of a goal space that has several; letters, digits, dots, dashes."""
        self.parse(name)
        return name

    @abstractmethod
    def goals(self, name: str, seed: int, split: str = "train") -> GoalSet:
        """Draw the goal space of this name; the same for the same seed."""

    @abstractmethod
    def unseen(self, per_category: int, seed: int) -> GoalSet:
        """Draw up to so many unseen goals of each category, grouped by category."""

    @abstractmethod
    def environment(self, num_envs: int) -> Environment:
        """Return an environment of so many episodes."""

    def totals(self, split: str) -> tuple[int, ...] | None:
        """Return how many goals of each category there are in all; None where nobody counts."""
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return name and categories, for an analysis that lacks the file which adds the world."""
        return {"name": self.name, "categories": [asdict(each) for each in self.categories]}

    def kinds(self, goals: GoalSet, positions: np.ndarray) -> list[str]:
        """Return what the goals at `positions` (n,) are, in words for figures: (n,).

        Categories, unless a world tells finer kinds apart, such as why a goal is impossible.
        """
        return [self.categories[each].words for each in goals.categories_at(positions)]

    def texts(self) -> Iterator[Mapping[str, str]]:
        """Go through groups of texts that a tokenizer must tell apart, by what they tell.

        Without any, whatever a tokenizer makes of the world is accepted, and run.log says so.
        """
        return iter(())

    def longest(self) -> Sequence[tuple[str, str]]:
        """Prompts with an action behind each, among them the longest for any tokenizer."""
        return ()

    def named_goal(self, words: str, objects: Sequence[str]) -> GoalSet:
        """Return the one goal that a person names, as a set that holds nothing else.

        words: the goal.
        objects: what there is in the scene.

        InputError where there is no such goal, or the world reads none.
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
"""World of a configuration that names none."""

LABEL = re.compile(r"[A-Za-z0-9 .,()/_-]{0,34}")
COLOR = re.compile(r"(#[0-9A-Fa-f]{6})?")

WorldT = TypeVar("WorldT", bound=World)


def register_world(kind: type[WorldT]) -> type[WorldT]:
    """Decorator of a subclass of `World`: its name can then stand in configurations."""
    world = kind()
    _check_categories(world)
    WORLDS.add(world)
    return kind


def _check_categories(world: World) -> None:
    """Names, labels and colours go into tables, pages and figures."""
    names = world.categories.names
    for each in world.categories:
        for key, rule, words in (
            ("name", NAME, "lower-case letters, digits and underscores, a letter first"),
            ("label", LABEL, "up to 34 letters, digits, spaces and .,()/_-"),
            ("color", COLOR, "#RRGGBB"),
        ):
            if not rule.fullmatch(getattr(each, key)):
                raise InputError(
                    f"world {world.name}: {key} {shown(getattr(each, key))} of a category is not "
                    f"allowed; allowed: {words}"
                )
    if len(set(names)) < len(names) or not world.categories.feasible:
        raise InputError(
            f"world {world.name}: categories are {', '.join(names)}; allowed: each name once, and "
            "one that is feasible"
        )


def describe(world: World, name: str, seed: int, split: str = "train") -> str:
    """Return the counts of a goal space and one example prompt for each of its categories."""
    goals, totals = world.goals(name, seed, split), world.totals(split)
    lines = [f"Goal space {name}, {split} split, seed {seed}: {len(goals):,} goals", ""]
    lines.append(f"{'category':16}{'goals':>10}" + (f"{'of':>14}" if totals else ""))
    counts = [*goals.counts().items(), ("total", len(goals))]
    for place, (category, count) in enumerate(counts):
        of = f"{(*totals, sum(totals))[place]:>14,}" if totals else ""
        lines.append(f"{category:16}{count:>10,}{of}")
    for number in np.flatnonzero(goals.sizes).tolist():
        first = goals.nth(number, np.array([0]))[0]
        example = goals.prompt(int(first)).rstrip()
        lines += ["", f"Example of {world.categories[number].name}:", example]
    return "\n".join(lines)
