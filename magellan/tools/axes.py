"""Samplers along axes of difficulty, on a simulated learner with known competence, in seconds.

No policy is trained. Four categories of goals form a chain, as in Little-Zoo: each is learnt from
its own episodes, at a rate proportional to the competence in the one before; a fifth is impossible.
A sampler gets the outcomes of its draws; `ORACLE` sees the learner itself. Protocol and results:
docs/studies/axes.md.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from magellan.backends.machine import cpu_model
from magellan.competence import ESTIMATORS, EstimatorParts, Outcomes
from magellan.config import checked_run
from magellan.core.errors import InputError, not_allowed
from magellan.core.files import new_folder, write_atomically, write_table
from magellan.core.parsing import read_json_object
from magellan.core.randomness import Streams, initial_seeds
from magellan.core.registry import is_built_in
from magellan.curriculum import Curriculum, backend_for
from magellan.jobs.log import utc_now
from magellan.jobs.provenance import code_version
from magellan.samplers import SAMPLERS
from magellan.samplers.conformance import track_of
from magellan.training.estimators import Estimators
from magellan.worlds import Categories, Category, GoalSet
from magellan.worlds.simulated import RATE, practised
from magellan.worlds.texts import TextGoals, Texts

CATEGORIES = Categories([Category("impossible", False), *map(Category, ("a", "b", "c", "d"))])
MIX = np.array([125, 25, 5, 1])
"""Proportions of goals in the four feasible categories, those of Little-Zoo."""
UPDATES, BATCH = 300, 8  # policy updates per run, episodes per update
VALUE_ERROR = 0.1  # standard deviation of the simulated critic's value around the true competence
WIDTH, SIGNAL = 16, 2.0  # of the features that replace a language model
_HEAD = {"learning_rate": 1e-2, "batch_size": 64, "refresh": 5, "delay": 15, "pool": 4_000}
CONSTANTS: dict[str, dict[str, Any]] = {"samplers": {"epsilon_decay": 14}, "competence": _HEAD}
"""Exploration decays over the same share of a run as in the study of Little-Zoo. For estimators
that read goals: step size chosen on a tuning seed, and a pool smaller than most goal spaces."""
READ_ALL = ("pcl", "vds", "regions", "frontier")
"""Samplers that cannot do with a pool: they predict all goals at each refresh."""
READING = ("learned", "learned_groups")
"""Estimators with which a user's sampler is run likewise, as it may need all goals."""
MOST = 10**6
"""Goals with which these are run; with 10^7 `regions` needs more than 24 GB."""
LIMIT = 20.0  # seconds of the sampler after which a run is aborted
ORACLE, FLOOR = "oracle", "random"
COLUMNS: tuple[str, ...] = ("sampler", "track", "axis", "value", "seed")
COLUMNS += ("success", "final", "seconds", "estimation_episodes")


CHANCES = {"easy": 0.9, "middle": 0.5, "hard": 0.1, "late": 0.5}
"""Success of a learner that does not learn, ten prompts a group; `late`: 0 until half-time."""
GROUPS = np.repeat(list(CHANCES), 10)
ANSWERS = 8
STARVED_COLUMNS = ("sampler", "seed", "before", "after", "end")


@dataclass(frozen=True)
class Setting:
    """A point on the axes.

    Attributes:
        impossible: share of impossible goals.
        goals: their number.
        forgetting: share of each skill lost per update.
        collapse: share of each skill lost at half-time.
        noise: probability that an outcome is flipped.
        jump: skill up to which competence is 0; above it, competence is the skill.
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


def settings() -> Iterator[tuple[str, float, Setting]]:
    """Yield axis, value and setting: the base, then every value that differs from it."""
    yield "base", 0.0, BASE
    for axis, values in AXES.items():
        for value in values:
            if value != getattr(BASE, axis):
                yield axis, value, replace(BASE, **{axis: type(getattr(BASE, axis))(value)})


class Numbers(Sequence[str]):
    """The numbers below `n` as texts, computed on demand."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        return str(index)


def goals_of(setting: Setting) -> TextGoals:
    """Numbered goals, grouped by category; no feasible category is empty."""
    impossible = round(setting.impossible * setting.goals)
    feasible = np.maximum((setting.goals - impossible) * MIX // MIX.sum(), 1)
    feasible[0] += setting.goals - impossible - feasible.sum()
    numbers = np.repeat(np.arange(len(CATEGORIES)), [impossible, *feasible])
    texts = Texts(Numbers(setting.goals), numbers, CATEGORIES)
    return TextGoals(texts, np.arange(setting.goals))


def features(goals: GoalSet, seed: int) -> Callable[[Sequence[str]], np.ndarray]:
    """Stand-in for a language model: n goals to vectors, float64 (n, WIDTH).

    A random vector per goal, standard normal in each dimension, plus `SIGNAL` in that of its
    category: the nearest centre is the right category for about three quarters of the goals. Random
    vectors are sums of rows of three tables, so that 10^7 goals need no memory.
    """
    rng = np.random.default_rng([seed, WIDTH])
    tables = [rng.normal(size=(n, WIDTH)) / np.sqrt(3) for n in (997, 1009, 1013)]

    def embed(texts: Sequence[str]) -> np.ndarray:
        numbers = np.array(texts, np.int64)
        vectors = np.sum([table[numbers % len(table)] for table in tables], axis=0)
        vectors[np.arange(len(numbers)), goals.categories_at(numbers)] += SIGNAL
        return vectors

    return embed


class Learner:
    """Skills of the four categories, in [0, 1], which determine outcomes and grow with practice."""

    def __init__(self, goals: GoalSet, setting: Setting, rng: np.random.Generator) -> None:
        self._goals, self._setting, self._rng = goals, setting, rng
        self.skills = np.zeros(len(MIX))

    @property
    def competence(self) -> np.ndarray:
        """True probability of success in each of the four categories."""
        return np.where(self.skills > self._setting.jump, self.skills, 0.0)

    def _chance(self, goals: np.ndarray) -> np.ndarray:
        return np.array([0.0, *self.competence])[self._goals.categories_at(goals)]

    def play(self, goals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Observed outcomes of one episode per goal, 0.0 or 1.0: (n,)."""
        flipped = rng.random(len(goals)) < self._setting.noise
        return ((rng.random(len(goals)) < self._chance(goals)) != flipped).astype(float)

    def practise(self, goals: np.ndarray) -> Outcomes:
        """Play the episodes of one update, then learn from them."""
        success = self.play(goals, self._rng)
        error = self._rng.normal(scale=VALUE_ERROR, size=len(goals))
        value = np.clip(self._chance(goals) + error, 0.0, 1.0)
        episodes = np.bincount(self._goals.categories_at(goals), minlength=len(CATEGORIES))[1:]
        skills = practised(self.skills, episodes, self.competence)
        self.skills = skills * (1.0 - self._setting.forgetting)
        return Outcomes(goals, success, advantage=np.abs(success - value))

    def best(self, n: int) -> np.ndarray:
        """Greedy choice of `n` goals: each of the category with the largest gain in skill, (n,)."""
        before, skills = np.array([1.0, *self.competence[:-1]]), self.skills.copy()
        chosen = np.zeros(n, np.int64)
        for i in range(n):
            progress = RATE * before * (1.0 - skills)
            category = int(np.argmax(progress))
            skills[category] += progress[category]
            chosen[i] = category + 1
        return np.cumsum([0, *self._goals.sizes])[chosen]


def run(name: str, setting: Setting, seed: int) -> tuple[float, float, float, int]:
    """One run: success over training, final success, seconds, episodes played only to estimate.

    Success is the learner's true competence, the mean of the four categories; over training, the
    mean over all updates; both are NaN if the run is aborted, or not started as it would not fit
    in memory. Seconds are CPU time of the sampler and its estimator, without the learner's.
    """
    goals, streams = goals_of(setting), Streams(seed)
    learner = Learner(goals, setting, streams("world"))
    sampler_name = FLOOR if name == ORACLE else name
    competence = CONSTANTS["competence"]
    spec = SAMPLERS[sampler_name]
    if name in READ_ALL or (not is_built_in(spec) and spec.estimator in READING):
        if len(goals) > MOST:
            return np.nan, np.nan, np.nan, 0
        competence = {**competence, "pool": len(goals)}
    values = {"sampler": sampler_name, "seed": seed, **CONSTANTS, "competence": competence}
    config = checked_run(values)
    model_seed, _, head_seed = initial_seeds(seed)
    backend = backend_for(config, features(goals, seed), goals.world, model_seed)
    estimators = Estimators(config, EstimatorParts(goals, streams, head_seed, backend))
    sampler = estimators.start_sampler(sampler_name, goals, streams("sampler"))
    success, seconds = np.full(UPDATES, np.nan), 0.0
    for update in range(UPDATES):
        if update == UPDATES // 2:
            learner.skills = learner.skills * (1.0 - setting.collapse)
        started = time.process_time()
        estimators.play_wanted(BATCH * update, learner.play)
        drawn = learner.best(BATCH) if name == ORACLE else sampler.sample(BATCH)
        seconds += time.process_time() - started
        outcomes = learner.practise(drawn)
        started = time.process_time()
        sampler.update(outcomes)
        seconds += time.process_time() - started
        if seconds > LIMIT:
            break
        success[update] = learner.competence.mean()
    return float(success.mean()), float(success[-1]), seconds, sum(estimators.cost().values())


def starved(name: str, seed: int) -> tuple[float, float, float]:
    """Share of draws of a group that cannot be solved until half-time; a quarter is even.

    In the last 50 updates before, the first 50 after, and the last 50. An update has 8 answers to
    each of 8 prompts of 40.
    """
    rng, half = np.random.default_rng([seed, ANSWERS]), UPDATES // 2
    chances = np.array([CHANCES[group] for group in GROUPS])
    vectors = rng.normal(size=(len(GROUPS), WIDTH))
    vectors[np.arange(len(GROUPS)), np.arange(len(GROUPS)) // 10] += SIGNAL
    late, shares = GROUPS == "late", np.zeros(UPDATES)

    def play(goals: np.ndarray) -> np.ndarray:
        return (rng.random(len(goals)) < chances[goals]).astype(float)

    spec, constants = SAMPLERS[name], {"samplers": CONSTANTS["samplers"]}
    if spec.estimator is not None and ESTIMATORS[spec.estimator].section == "competence":
        constants["competence"] = CONSTANTS["competence"]
    if name == "e2h":
        constants["e2h"] = {"updates": UPDATES}
    curriculum = Curriculum(
        *([str(row) for row in range(len(GROUPS))], name),
        embed=lambda texts: vectors[np.array(texts, np.int64)],
        seed=seed,
        groups=GROUPS.tolist(),
        settings=constants,
        play=play,
        order=[*CHANCES],
    )
    for update in range(UPDATES):
        chances[late] = CHANCES["late"] if update >= half else 0.0
        drawn = curriculum.sample(BATCH)
        shares[update] = late[drawn].mean()
        answers = np.repeat(drawn, ANSWERS)
        curriculum.update(answers, play(answers))
    spans = (half - 50, half), (half, half + 50), (UPDATES - 50, UPDATES)
    before, after, end = (float(shares[slice(*span)].mean()) for span in spans)
    return before, after, end


def starvation(
    samplers: Sequence[str] | None, seeds: int, path: Path, log: Callable[[str], Any]
) -> None:
    """Write `starved` of samplers, or of all, with seeds 1 to `seeds` to a table.

    Existing rows of the file are kept, not recomputed.

    Raises:
        InputError: an unknown sampler, or the file is not a table of starvation.
    """
    names = [SAMPLERS.find(name, "--samplers").name for name in samplers or SAMPLERS]
    rows = _read_rows(path, STARVED_COLUMNS)
    new_folder(path.parent)
    for name in names:
        for seed in range(1, seeds + 1):
            key = name, str(seed)
            if key not in rows:
                rows[key] = [*key, *(f"{share:.6g}" for share in starved(name, seed))]
        write_table(path, STARVED_COLUMNS, rows.values())
        log(name)


def table(
    samplers: Sequence[str] | None, seeds: int, path: Path, log: Callable[[str], Any]
) -> None:
    """Run samplers, or all, in every setting with seeds 1 to `seeds`, and write rows to `path`.

    Existing rows of the file are kept, not recomputed. A setting ends with its first aborted run. A
    JSON file next to the table records versions and constants.

    Raises:
        InputError: an unknown sampler, or the file is not an axes table.
    """
    for name in {*(samplers or ())} - {ORACLE}:
        SAMPLERS.find(name, "--samplers")
    about = path.with_suffix(".json")
    if about == path:
        raise not_allowed("--output", str(path), "another name, as a JSON file beside it has this")
    rows = _read_rows(path, COLUMNS)
    new_folder(path.parent)
    former = read_json_object(about) if rows and about.exists() else {}
    kept = len(rows)
    for name in samplers or [*SAMPLERS, ORACLE]:
        track = ORACLE if name == ORACLE else track_of(name)
        for axis, value, setting in settings():
            for seed in map(str, range(1, seeds + 1)):
                key = name, track, axis, f"{value:g}", seed
                if key not in rows:
                    results = run(name, setting, int(seed))
                    cells = ("" if np.isnan(value) else f"{value:.6g}" for value in results)
                    rows[key] = [*key, *cells]
                if not rows[key][COLUMNS.index("success")]:
                    break
            write_table(path, COLUMNS, rows.values())
            log(f"{name}: {axis} {value:g}")
        if len(rows) > kept:
            write_atomically(about, json.dumps(_origin(former), indent=1).encode() + b"\n")


def _origin(former: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and processors of all rows, `former` has those of the kept ones; constants."""
    own = {"code_version": code_version(), "cpu": cpu_model()}
    every = {key: [*former.get(key, value).split(", "), value] for key, value in own.items()}
    return {
        **{key: ", ".join(dict.fromkeys(values)) for key, values in every.items()},
        "updates": UPDATES,
        "batch": BATCH,
        "finished": utc_now(),
        "constants": CONSTANTS,
        "base": asdict(BASE),
    }


def _read_rows(path: Path, columns: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """Rows of a table by their cells up to the seed; empty if there is no file."""
    if not path.exists():
        return {}
    try:
        header, *rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines())) or [[]]
    except (OSError, ValueError, csv.Error):
        header, rows = [], []
    if header != [*columns] or any(len(row) != len(columns) for row in rows):
        raise InputError(
            f"--output: {path} is not a table with the columns {', '.join(columns)}; allowed: a "
            "new file, or such a table"
        )
    return {tuple(row[: columns.index("seed") + 1]): row for row in rows}
