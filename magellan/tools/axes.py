"""Samplers along axes of difficulty: a simulated learner, whose competence is known, in seconds.

Nothing is played and no policy is trained. Four categories of goals form a chain, as in Little-Zoo:
each is learnt from its own episodes, as fast as the one before allows
(`magellan.worlds.simulated.practised`); a fifth cannot be reached. A sampler is told the outcomes
of what it draws. One axis at a time makes it harder; two references tell how far one could get:
`random`, and `ORACLE`, which sees the learner. Protocol and answer: docs/studies/axes.md.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from magellan.backends.machine import cpu_model
from magellan.competence import EstimatorParts, Outcomes
from magellan.config import checked_run
from magellan.core.errors import InputError
from magellan.core.files import write_atomically, write_table
from magellan.core.randomness import Streams, initial_seeds
from magellan.curriculum import backend_for
from magellan.jobs.log import utc_now
from magellan.jobs.versions import code_version
from magellan.samplers import SAMPLERS, GoalSampler
from magellan.samplers.arms import EachCategory
from magellan.training.estimators import Estimators
from magellan.worlds import NOTHING, Categories, Category, GoalSet
from magellan.worlds.simulated import RATE, practised
from magellan.worlds.texts import Texts

CATEGORIES = Categories([Category("impossible", False), *map(Category, ("a", "b", "c", "d"))])
MIX = np.array([125, 25, 5, 1])
"""Goals of the four categories that can be reached, in proportion: Little-Zoo's."""
UPDATES, BATCH = 300, 8
"""Policy updates of a run, and episodes between two of them."""
VALUE_ERROR = 0.1
"""Standard deviation of the simulated critic's value around the true competence."""
CONSTANTS = {
    "samplers": {"epsilon_decay": 14},
    "competence": {
        "learning_rate": 1e-2,
        "batch_size": 64,
        "buffer": 5_000,
        "refresh": 5,
        "delay": 15,
        "pool": 4_000,
    },
}
"""Exploration falls within the same share of a run as in the study of Little-Zoo. Of estimators
that read goals: step size by a tuning seed, and candidates drawn anew at every refresh."""
LIMIT = 20.0
"""Seconds of choosing after which a run is given up."""
ORACLE, FLOOR = "oracle", "random"
SAME, GROUPS = "same information", "groups given"
COLUMNS = (
    *("sampler", "track", "axis", "value", "seed", "success", "final"),
    *("seconds", "estimation_episodes"),
)


@dataclass(frozen=True)
class Setting:
    """A place on the axes.

    Attributes:
        impossible: share of goals that cannot be reached.
        goals: how many there are.
        forgetting: share of each skill that is lost at every update.
        collapse: share of each skill that is lost half-way.
        noise: chance that an outcome is told as its opposite.
        jump: skill up to which nothing succeeds; above it, success has the chance of the skill.
    """

    impossible: float = 0.8
    goals: int = 10_000
    forgetting: float = 0.0
    collapse: float = 0.0
    noise: float = 0.0
    jump: float = 0.0


BASE = Setting()
AXES: dict[str, tuple[float, ...]] = {
    "impossible": (0.0, 0.67, 0.8, 0.95),
    "goals": (10**3, 10**4, 10**5, 10**6, 10**7),
    "forgetting": (0.0, 0.002, 0.01),
    "collapse": (0.0, 0.5, 1.0),
    "noise": (0.0, 0.05, 0.2),
    "jump": (0.0, 0.5, 0.8),
}
"""Values of each axis, the base among them; `base` itself is run once."""


def places() -> Iterator[tuple[str, float, Setting]]:
    """Axis, value and setting of each place: the base first, then what differs from it."""
    yield "base", 0.0, BASE
    for axis, values in AXES.items():
        for value in values:
            if value != getattr(BASE, axis):
                yield axis, value, replace(BASE, **{axis: type(getattr(BASE, axis))(value)})


class Goals(GoalSet):
    """Goals by number, a category after the other; a prompt is the number."""

    world: Texts

    def __init__(self, setting: Setting) -> None:
        super().__init__(Texts(["0"], np.zeros(1, np.int64), CATEGORIES), "train")
        impossible = round(setting.impossible * setting.goals)
        shares = np.floor((setting.goals - impossible) * MIX / MIX.sum())
        possible = np.maximum(shares, 1).astype(np.int64)
        possible[0] += setting.goals - impossible - possible.sum()
        self._sizes = np.array([impossible, *possible])
        self._ends = np.cumsum(self._sizes)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def sizes(self) -> np.ndarray:
        return self._sizes

    def codes_at(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(positions)

    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, positions, side="right")

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        return self._ends[category] - self._sizes[category] + ranks

    def goal(self, position: int) -> str:
        return str(position)

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        return str(position)


def features(goals: Goals, seed: int, width: int = 16) -> Callable[[Sequence[str]], np.ndarray]:
    """What stands in for a language model: n goals to vectors, float64 (n, width).

    A goal's own random vector, standard normal in each dimension, plus 2 in that of its category:
    the nearest centre is the right category for some three quarters of the goals. Own vectors are
    sums of rows of three tables, so that 10^7 of them need no memory.
    """
    rng = np.random.default_rng([seed, width])
    tables = [rng.normal(size=(n, width)) / np.sqrt(3) for n in (997, 1009, 1013)]

    def embed(texts: Sequence[str]) -> np.ndarray:
        numbers = np.array(texts, np.int64)
        vectors = sum(table[numbers % len(table)] for table in tables)
        vectors[np.arange(len(numbers)), goals.categories_at(numbers)] += 2.0
        return np.asarray(vectors)

    return embed


class Learner:
    """Skills of the four categories, in [0, 1], and what comes of an episode."""

    def __init__(self, goals: Goals, setting: Setting, rng: np.random.Generator) -> None:
        self._goals, self._setting, self._rng = goals, setting, rng
        self.skills = np.zeros(len(MIX))

    @property
    def competence(self) -> np.ndarray:
        """True chance of success in each of the four categories."""
        return np.where(self.skills > self._setting.jump, self.skills, 0.0)

    def play(self, goals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """What is told of one episode each, 0.0 or 1.0: (n,)."""
        chance = self._chance(goals)
        flipped = rng.random(len(goals)) < self._setting.noise
        return ((rng.random(len(goals)) < chance) != flipped).astype(float)

    def practise(self, goals: np.ndarray) -> Outcomes:
        """Episodes between two updates, and what they teach."""
        success = self.play(goals, self._rng)
        error = self._rng.normal(scale=VALUE_ERROR, size=len(goals))
        value = np.clip(self._chance(goals) + error, 0.0, 1.0)
        categories = self._goals.categories_at(goals)
        episodes = np.bincount(categories, minlength=len(MIX) + 1)[1:]
        self.skills = practised(self.skills, episodes, self.competence)
        self.skills = self.skills * (1.0 - self._setting.forgetting)
        return Outcomes(goals, success, advantage=np.abs(success - value))

    def collapse(self) -> None:
        """Half-way: a share of each skill is lost at once."""
        self.skills = self.skills * (1.0 - self._setting.collapse)

    def _chance(self, goals: np.ndarray) -> np.ndarray:
        return np.array([0.0, *self.competence])[self._goals.categories_at(goals)]


class Oracle:
    """Practises the category whose true progress by one more episode is largest."""

    def __init__(self, goals: Goals, learner: Learner) -> None:
        self._goals, self._learner = goals, learner

    def sample(self, n: int) -> np.ndarray:
        """`n` goals; each counts on what the ones before it teach."""
        able = self._learner.competence
        skills, chosen = self._learner.skills.copy(), np.zeros(n, np.int64)
        for place in range(n):
            progress = RATE * np.array([1.0, *able[:-1]]) * (1.0 - skills)
            best = int(np.argmax(progress))
            skills[best] += progress[best]
            chosen[place] = self._goals.nth(best + 1, np.int64(0))
        return chosen

    def update(self, outcomes: Outcomes) -> None:
        """It has seen them already."""


def run(name: str, setting: Setting, seed: int) -> tuple[Any, ...]:
    """One run: track, success over training, at the end, seconds, episodes to estimate alone.

    Success is the learner's true competence, mean of the four categories; over training it is the
    mean over all updates; both are NaN where the run is given up. Seconds of one core are those of
    choosing: the learner's own are left out.
    """
    goals, streams = Goals(setting), Streams(seed)
    learner = Learner(goals, setting, streams("world"))
    config = checked_run({"sampler": FLOOR if name == ORACLE else name, "seed": seed, **CONSTANTS})
    for_model, _, for_head = initial_seeds(seed)
    backend = backend_for(config, features(goals, seed), goals.world, for_model)
    estimators = Estimators(config, EstimatorParts(goals, streams, for_head, backend))
    sampler: GoalSampler | Oracle = Oracle(goals, learner)
    if name != ORACLE:
        sampler = estimators.drive(name, goals, streams("sampler"))
    success, seconds = np.zeros(UPDATES), 0.0
    for update in range(UPDATES):
        if update == UPDATES // 2:
            learner.collapse()
        started = time.process_time()
        estimators.play_wanted(BATCH * update, learner.play)
        drawn = sampler.sample(BATCH)
        chosen = time.process_time()
        outcomes = learner.practise(drawn)
        told = time.process_time()
        sampler.update(outcomes)
        seconds += chosen - started + time.process_time() - told
        success[update] = learner.competence.mean()
        if seconds >= LIMIT:
            success[:] = np.nan
            break
    cost = sum(estimators.cost().values())
    return _track(sampler), float(success.mean()), float(success[-1]), seconds, cost


def _track(sampler: GoalSampler | Oracle) -> str:
    if isinstance(sampler, Oracle):
        return ORACLE
    return GROUPS if isinstance(sampler.arms, EachCategory) else SAME


def table(samplers: Sequence[str], seeds: int, path: Path, say: Callable[[str], Any]) -> None:
    """Run every sampler in every place with seeds 1 to `seeds`, and write the rows to `path`.

    Rows that the file has stay, and are not made again. A place in which a run was given up has
    that row alone. Beside the file stands what it was made with.

    Raises:
        InputError: the file is not such a table.
    """
    rows = _rows_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in samplers:
        for axis, value, setting in places():
            for seed in range(1, seeds + 1):
                key = name, axis, f"{value:g}", str(seed)
                if key not in rows:
                    track, *found = run(name, setting, seed)
                    numbers = ("" if np.isnan(each) else f"{each:.6g}" for each in found)
                    rows[key] = [name, track, axis, f"{value:g}", str(seed), *numbers]
                if not rows[key][COLUMNS.index("success")]:
                    break
            write_table(path, COLUMNS, rows.values())
            say(f"{name}: {axis} {value:g}")
    write_atomically(path.with_suffix(".json"), json.dumps(_made_with(), indent=1).encode() + b"\n")


def _rows_of(path: Path) -> dict[tuple[str, ...], list[str]]:
    """Rows of a table by sampler, axis, value and seed; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    if tuple(header) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise InputError(f"--output: {path} holds something else; allowed: a new file, or a table")
    return {(row[0], *row[2:5]): row for row in rows}


def _made_with() -> dict[str, Any]:
    """Constants and code of the rows."""
    return {
        "code_version": code_version(),
        "finished": utc_now(),
        "cpu": cpu_model(),
        "updates": UPDATES,
        "batch": BATCH,
        "constants": CONSTANTS,
        "base": {field.name: getattr(BASE, field.name) for field in fields(BASE)},
    }


def chosen_samplers(names: Sequence[str] | None) -> list[str]:
    """Those that are named, or all, the oracle last.

    Raises:
        InputError: one is unknown.
    """
    for name in names or ():
        if name != ORACLE:
            SAMPLERS.find(name, "--samplers")
    return list(names or [*SAMPLERS, ORACLE])
