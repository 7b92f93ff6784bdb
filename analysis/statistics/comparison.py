"""Runs that should differ in one setting only: do they learn alike?

Variants, samplers or estimators of one experiment, paired by goal space and seed. The difference of
a category is the mean over seeds; its interval is the studentised bootstrap of it. The mean of the
categories is one number of a run; only its difference has a test, a sign flip of the pairs,
corrected after Holm where one side is compared with several. Runs of several phases are compared in
their last one. Of samplers and variants at once the interaction is compared: a sampler's lead in
one variant with that in another.

What is compared: mean success over training, or the error of the predicted competence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from analysis.statistics import summaries
from analysis.statistics.intervals import (
    DIFFERENCE,
    EQUAL,
    SINGLE,
    Bootstrap,
    Matrix,
    holm,
    mean_estimate,
    sign_flip_test,
)
from analysis.statistics.matrices import (
    evaluated_categories,
    score_matrices,
    settings,
)
from analysis.tables.grid import Algorithm, run_name, variant_names
from analysis.tables.printing import Table, between
from analysis.tables.results import SPLITS, Results, rows_where
from magellan.core.errors import InputError

FEWEST = 2
BOOTSTRAP = Bootstrap(repetitions=9_999)
NONE = "none: all differences equal"
"""In place of an interval; the tables of statistics say `none: all runs equal`."""

Interval = tuple[float, float]


class Side(NamedTuple):
    """Runs to compare: an algorithm of some tables, and what it is called.

    estimator: whose predictions are meant; empty: of the one that chose the goals, or of the only
        one that watched.
    minus: another algorithm of these tables, whose numbers are taken off seed by seed; None: none.
    """

    name: str
    results: Results
    algorithm: Algorithm
    estimator: str = ""
    minus: Algorithm | None = None


class Pair(NamedTuple):
    """Two sides whose runs have the same goal space and seeds."""

    title: str
    goal_space: str
    first: Side
    second: Side


def mean_difference(differences: Matrix) -> tuple[float, Interval | None]:
    """Mean of differences (seeds,) and its interval; None with a single seed or all equal ones."""
    found = mean_estimate(differences[:, None], BOOTSTRAP, DIFFERENCE)
    none = found.method[0] in (SINGLE, EQUAL)
    return float(differences.mean()), None if none else (float(found.low[0]), float(found.high[0]))


# --- which runs make a pair -------------------------------------------------------------------


def pairs_of_variants(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first variant with each other one, for every sampler and goal space that has both.

    Raises:
        InputError: unknown variants, a pair that no sampler has, or one has a seed that the other
            lacks.
    """

    def side(sampler: str, name: str) -> Side:
        return Side(name, results, Algorithm(sampler, name))

    _check_names("variants", names, variant_names(results.experiment))
    samplers = dict.fromkeys(algorithm.sampler for algorithm in results.algorithms)
    sides = [(f"sampler {each}", partial(side, each)) for each in samplers]
    return _first_with_others("--variants: no sampler has runs of", names, sides)


def pairs_of_samplers(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first sampler with each other one, of the same variant, seeds and goal space.

    Raises:
        InputError: unknown samplers, a pair that no variant has, or one has a seed that the other
            lacks.
    """

    def side(variant: str, name: str) -> Side:
        return Side(name, results, Algorithm(name, variant))

    _check_names("samplers", names, results.experiment["samplers"])
    variants = dict.fromkeys(algorithm.variant for algorithm in results.algorithms)
    sides = [(f"variant {each}", partial(side, each)) for each in variants]
    return _first_with_others("--samplers: no variant has runs of", names, sides)


def pairs_of_interactions(
    results: Results, samplers: Sequence[str], variants: Sequence[str]
) -> list[Pair]:
    """Is the lead of the first sampler over each other one the same in two variants?

    A side is a variant, its numbers are differences of two samplers; the first variant with each
    other one.

    Raises:
        InputError: unknown samplers or variants, or a run is missing.
    """
    first = samplers[0]

    def side(other: str, name: str) -> Side:
        minus = Algorithm(other, name)
        return Side(f"{first} minus {other}, {name}", results, Algorithm(first, name), minus=minus)

    _check_names("samplers", samplers, results.experiment["samplers"])
    _check_names("variants", variants, variant_names(results.experiment))
    wanted = {Algorithm(*each) for each in itertools.product(samplers, variants)}
    for absent in sorted(wanted - set(results.algorithms)):
        raise InputError(
            f"--variants: sampler {absent.sampler!r} has no runs of {absent.variant!r}; "
            "allowed: variants that all these samplers have"
        )
    sides = [(f"{first} minus others", partial(side, each)) for each in samplers[1:]]
    return _first_with_others("--variants: no sampler has runs of", variants, sides)


def pairs_of_estimators(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first estimator with each other one, where both have predicted of the same runs.

    Raises:
        InputError: unknown estimators, or a pair that no run has.
    """

    def side(algorithm: Algorithm, name: str) -> Side:
        return Side(name, results, algorithm, name)

    known = sorted(results.tables["competence"]["estimator"].unique())
    _check_names("estimators", names, known)
    sides = [
        (f"sampler {a.sampler}, variant {a.variant}", partial(side, a)) for a in results.algorithms
    ]
    return _first_with_others("--estimators: no run has", names, sides)


def _check_names(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"--{kind}: {name!r} is unknown; allowed: {', '.join(known) or 'none'}"
            )
        if names.count(name) > 1:
            raise InputError(f"--{kind}: {name!r} stands twice; allowed: different {kind}")
    if len(names) < FEWEST:
        raise InputError(f"--{kind}: {names[0]!r} stands alone; allowed: two {kind} or more")


def _first_with_others(
    nobody: str, names: Sequence[str], sides: Sequence[tuple[str, Callable[[str], Side]]]
) -> list[Pair]:
    """Pairs of the first name with each other one, in each goal space that has runs of both.

    Args:
        nobody: how the error begins where a pair has none.
        names: what is compared.
        sides: titles, each with what makes a side of a name.
    """
    pairs: list[Pair] = []
    for second in names[1:]:
        both = [(title, side(names[0]), side(second)) for title, side in sides]
        found = [
            Pair(title, goal_space, one, other)
            for title, one, other in both
            for goal_space in one.results.goal_spaces
            if _have_runs(one, other, goal_space)
        ]
        if not found:
            raise InputError(f"{nobody} both {names[0]!r} and {second!r}")
        pairs += found
    return pairs


def _have_runs(one: Side, other: Side, goal_space: str) -> bool:
    """Whether both have runs there; InputError where one has a seed that the other lacks."""
    runs = [run for run in one.results.runs if run.goal_space == goal_space]
    algorithms = [each for side in (one, other) for each in (side.algorithm, side.minus) if each]
    if not set(algorithms) <= set(one.results.algorithms):
        return False  # a variant that makes no difference to a sampler has no runs of it
    seeds = [
        {run.seed: run for run in runs if run.algorithm == algorithm} for algorithm in algorithms
    ]
    for mine in seeds[1:]:
        for seed in sorted(mine.keys() ^ seeds[0].keys()):
            run = mine.get(seed) or seeds[0][seed]
            raise InputError(f"compare: {run_name(run)} is there in one of the two only")
    return bool(seeds[0]) and all(_predicts(side, goal_space) for side in (one, other))


def _predicts(side: Side, goal_space: str) -> bool:
    """Whether there are predictions of a side's estimator, where it names one."""
    where = {"goal_space": goal_space, "estimator": side.estimator, **side.algorithm._asdict()}
    return not side.estimator or len(side.results.table("competence", **where)) > 0


# --- what is compared -------------------------------------------------------------------------

Scores = tuple[list[str], Matrix]
"""Names of the categories, and a number of each run: (seeds in increasing order, categories)."""


def success_of(side: Side, goal_space: str, split: str) -> Scores:
    """Mean success over training: the area under the learning curve divided by its length."""
    area = _area(side.results, side.algorithm, goal_space, split)
    if side.minus is not None:
        area = area - _area(side.results, side.minus, goal_space, split)
    return list(evaluated_categories(side.results, goal_space, split)), area


def _area(results: Results, algorithm: Algorithm, goal_space: str, split: str) -> Matrix:
    """(seeds in increasing order, categories)."""
    order = np.argsort(results.seeds_of(algorithm, goal_space))
    return score_matrices(results, algorithm, goal_space, split)["area"][order]


def error_of(side: Side, goal_space: str, split: str) -> Scores:
    """Mean over evaluations of |predicted competence - observed success|, impossible goals too.

    Raises:
        InputError: nothing was predicted, or several estimators watched and none chose.
    """
    results, algorithm = side.results, side.algorithm
    where = {"goal_space": goal_space, "split": split, **algorithm._asdict()}
    frame = rows_where(summaries.calibration(results), **where)
    estimators = list(dict.fromkeys(frame["estimator"]))
    meant = side.estimator or results.driver_of(algorithm)
    chosen = [name for name in estimators if name == meant] or estimators
    if len(chosen) != 1:
        found = ", ".join(chosen) or "none"
        raise InputError(
            f"--of error: sampler {algorithm.sampler!r} needs one estimator; found: {found}"
        )
    errors = rows_where(frame, estimator=chosen[0]).pivot_table(
        index="seed", columns="category", values="mean_absolute_error"
    )
    names = [name for name in results.categories.names if name in errors.columns]
    return names, errors[names].sort_index().to_numpy()


class Measure(NamedTuple):
    """What a number of a run and category is: its title, and how it is read from tables."""

    title: str
    scores: Callable[[Side, str, str], Scores]


MEASURES = {
    "success": Measure("Mean success over training", success_of),
    "error": Measure("Error of the predicted competence, mean over training", error_of),
}


# --- tables -----------------------------------------------------------------------------------


def tables(
    pairs: Sequence[Pair], of: str = "success", splits: Sequence[str] = SPLITS, truth: str = ""
) -> list[Table]:
    """One table per pair: a row per split and category, and one for the mean of the categories.

    Differences are the first side minus the second. Where one side is compared with several, the
    p values are corrected after Holm over these, on each split or on both together, as
    `analysis.family` says.

    Args:
        pairs: sides to compare.
        of: what is compared, one of `MEASURES`.
        splits: of the goals.
        truth: what errors are against; empty: observed success.
    """
    against = f" against {truth}" if truth else ""
    measure = MEASURES[of]._replace(title=MEASURES[of].title + against)
    families: dict[tuple[str, str], list[Compared]] = {}
    for pair in pairs:
        compared = _compared(pair, measure, splits)
        families.setdefault((pair.title, pair.goal_space), []).append(compared)
    return [_table(measure, family, each) for family in families.values() for each in family]


class Compared(NamedTuple):
    """Scores of a pair by split: categories, (seeds, categories) of both; p of the mean."""

    pair: Pair
    scores: dict[str, tuple[list[str], Matrix, Matrix]]
    p: dict[str, float]


def _compared(pair: Pair, measure: Measure, splits: Sequence[str]) -> Compared:
    scores, p = {}, {}
    for split in splits:
        (categories, ours), (_, theirs) = (
            measure.scores(side, pair.goal_space, split) for side in (pair.first, pair.second)
        )
        scores[split] = categories, ours, theirs
        p[split] = sign_flip_test((ours - theirs).mean(axis=1), BOOTSTRAP.seed).p
    return Compared(pair, scores, p)


def _table(measure: Measure, family: Sequence[Compared], compared: Compared) -> Table:
    pair = compared.pair
    names = pair.first.name, pair.second.name
    over = len(_tests(family, compared, next(iter(compared.p))))
    header = ["split", "category", *names, "difference"]
    header += [f"{BOOTSTRAP.confidence:.0%} interval", "n", "p"]
    header += ["p, uncorrected"] * (over > 1)
    rows = []
    for split, (categories, ours, theirs) in compared.scores.items():
        chances = [compared.p[split]]
        if over > 1:
            chances.insert(0, _corrected(family, compared, split))
        for column, category in enumerate(categories):
            rows.append(
                _row([split, category], ours[:, column], theirs[:, column], [""] * len(chances))
            )
        means = ours.mean(axis=1), theirs.mean(axis=1)
        rows.append(_row([split, "mean"], *means, [f"{p:.3f}" for p in chances]))
    what = measure.title + pair.first.results.counted_from
    holm = f", Holm over {over}" if over > 1 else ""
    title = (
        f"{what}, {pair.title}, goal space {pair.goal_space}: "
        f"{minus(names)} (sign flips of pairs by seed{holm})"
    )
    return Table(title, header, rows)


def minus(names: Sequence[str]) -> str:
    """What a difference is of: `A minus B`; brackets where these are differences themselves."""
    return " minus ".join(f"({name})" if " minus " in name else name for name in names)


def _corrected(family: Sequence[Compared], compared: Compared, split: str) -> float:
    """p of a pair on a split after Holm's correction over its family."""
    tests = _tests(family, compared, split)
    at = [each is compared and name == split for each, name in tests].index(True)
    return float(holm(np.array([each.p[name] for each, name in tests]))[at])


def _tests(
    family: Sequence[Compared], compared: Compared, split: str
) -> list[tuple[Compared, str]]:
    """Pairs and splits that are corrected together with this split of a pair."""
    together = settings(compared.pair.first.results).family == "question"
    return [(each, name) for each in family for name in compared.p if together or name == split]


def _row(names: list[str], first: Matrix, second: Matrix, chances: list[str]) -> list[str]:
    difference, interval = mean_difference(first - second)
    ends = "n/a" if len(first) == 1 else NONE
    if interval is not None:
        ends = between(*interval)
    means = [f"{first.mean():.3f}", f"{second.mean():.3f}", f"{difference:+.3f}"]
    return [*names, *means, ends, str(len(first)), *chances]
