"""Runs that should differ in one setting only: do they learn alike?

Two experiments, or variants or samplers of one. Runs are paired by sampler, goal space and seed, or
those of two samplers by goal space and seed. The difference of a category is the mean over seeds;
its interval is the studentised bootstrap of it. The mean of the categories is one number of a run;
only its difference has a test, a sign flip of the pairs, corrected after Holm where one side is
compared with several. Runs of several phases are compared in their last one. Of samplers and
variants at once the interaction is compared: a sampler's lead in one variant with that in another.

What is compared: mean success over training, or the error of the predicted competence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    evaluation_points,
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


def check_comparable(first: Results, second: Results) -> None:
    """InputError unless both have the same algorithms, goal spaces, seeds and evaluations."""
    for key in ("samplers", "goal_spaces", "seeds"):
        mine, other = (list(results.experiment[key]) for results in (first, second))
        if mine != other and not (key == "seeds" and set(mine) == set(other)):
            raise InputError(f"compare: {key} are {mine} and {other}; must be the same")
    for run in sorted(set(first.runs) ^ set(second.runs)):
        raise InputError(f"compare: {run_name(run)} is there in one of the two only")
    if first.unit != second.unit:
        raise InputError(
            f"compare: runs end by {first.unit} and {second.unit}; must be the same unit"
        )
    for goal_space in first.goal_spaces:
        points = [evaluation_points(results, goal_space).tolist() for results in (first, second)]
        if points[0] != points[1]:
            raise InputError(
                f"compare: goal space {goal_space!r} is evaluated at other {first.unit}"
            )
        for split in SPLITS:
            found = [
                evaluated_categories(results, goal_space, split) for results in (first, second)
            ]
            if found[0] != found[1]:
                raise InputError(
                    f"compare: goal space {goal_space!r}, split {split!r} has other categories"
                )


def pairs_of_experiments(first: Results, second: Results) -> list[Pair]:
    """Every algorithm and goal space of two experiments.

    Raises:
        InputError: the experiments have not the same runs, or were not evaluated alike.
    """
    check_comparable(first, second)
    names = [str(results.experiment["experiment"]) for results in (first, second)]
    pairs = []
    for algorithm in first.algorithms:
        sides = [
            Side(name, results, algorithm)
            for name, results in zip(names, (first, second), strict=True)
        ]
        several = len(variant_names(first.experiment)) > 1
        variant = f", variant {algorithm.variant}" if several else ""
        title = f"sampler {algorithm.sampler}{variant}"
        pairs += [Pair(title, space, *sides) for space in _spaces_of(first, algorithm)]
    return pairs


def pairs_of_variants(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first variant with each other one, for every sampler and goal space that has both.

    Raises:
        InputError: unknown variants, a pair that no sampler has, or one has a seed that the other
            lacks.
    """

    def pairs(first: str, second: str) -> Iterator[Pair]:
        for sampler in dict.fromkeys(algorithm.sampler for algorithm in results.algorithms):
            both = [Algorithm(sampler, name) for name in (first, second)]
            yield from _pairs_of_both(results, both, (first, second), f"sampler {sampler}")

    _check_names("--variants", "variants", names, variant_names(results.experiment))
    return _first_with_others("--variants: no sampler has runs of", names, pairs)


def pairs_of_samplers(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first sampler with each other one, of the same variant, seeds and goal space.

    Raises:
        InputError: unknown samplers, a pair that no variant has, or one has a seed that the other
            lacks.
    """

    def pairs(first: str, second: str) -> Iterator[Pair]:
        for variant in dict.fromkeys(algorithm.variant for algorithm in results.algorithms):
            both = [Algorithm(name, variant) for name in (first, second)]
            yield from _pairs_of_both(results, both, (first, second), f"variant {variant}")

    _check_names("--samplers", "samplers", names, results.experiment["samplers"])
    return _first_with_others("--samplers: no variant has runs of", names, pairs)


def _first_with_others(
    nobody: str, names: Sequence[str], pairs_of: Callable[[str, str], Iterable[Pair]]
) -> list[Pair]:
    """Pairs of the first name with each other one; InputError that begins with `nobody`."""
    pairs: list[Pair] = []
    for second in names[1:]:
        found = list(pairs_of(names[0], second))
        if not found:
            raise InputError(f"{nobody} both {names[0]!r} and {second!r}")
        pairs += found
    return pairs


def pairs_of_interactions(
    results: Results, samplers: Sequence[str], variants: Sequence[str]
) -> list[Pair]:
    """Is the lead of the first sampler over each other one the same in two variants?

    A side is a variant, its numbers are differences of two samplers; the first variant with each
    other one.

    Raises:
        InputError: unknown samplers or variants, or a run is missing.
    """
    _check_names("--samplers", "samplers", samplers, results.experiment["samplers"])
    _check_names("--variants", "variants", variants, variant_names(results.experiment))
    pairs, first = [], samplers[0]
    for variant, other in itertools.product(variants[1:], samplers[1:]):
        both = (variants[0], variant)
        sides = [
            Side(each, results, Algorithm(first, each), minus=Algorithm(other, each))
            for each in both
        ]
        four = [name for side in sides for name in (side.algorithm, side.minus) if name]
        for absent in sorted(set(four) - set(results.algorithms)):
            raise InputError(
                f"--variants: sampler {absent.sampler!r} has no runs of {absent.variant!r}; "
                "allowed: variants that all these samplers have"
            )
        pairs += [
            Pair(f"{first} minus others", goal_space, *_named(sides, f"{first} minus {other}"))
            for goal_space in results.goal_spaces
            if all(_check_seeds(results, (four[0], each), goal_space) for each in four[1:])
        ]
    return pairs


def _named(sides: Sequence[Side], what: str) -> list[Side]:
    return [side._replace(name=f"{what}, {side.name}") for side in sides]


def _check_names(option: str, kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"{option}: {name!r} is unknown; allowed: {', '.join(known) or 'none'}"
            )
        if names.count(name) > 1:
            raise InputError(f"{option}: {name!r} stands twice; allowed: different {kind}")
    if len(names) < FEWEST:
        raise InputError(f"{option}: {names[0]!r} stands alone; allowed: two {kind} or more")


def _pairs_of_both(
    results: Results, both: Sequence[Algorithm], names: Sequence[str], title: str
) -> list[Pair]:
    """Two algorithms of the same tables, in each goal space that has runs of them."""
    if not set(both) <= set(results.algorithms):
        return []  # a variant that makes no difference to a sampler has no runs of it
    sides = [Side(name, results, each) for name, each in zip(names, both, strict=True)]
    return [
        Pair(title, goal_space, *sides)
        for goal_space in results.goal_spaces
        if _check_seeds(results, both, goal_space)
    ]


def pairs_of_estimators(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first estimator with each other one, where both have predicted of the same runs.

    Raises:
        InputError: unknown estimators, or a pair that no run has.
    """
    predicting = summaries.calibration(results)

    def pairs(first: str, second: str) -> Iterator[Pair]:
        for algorithm in results.algorithms:
            title = f"sampler {algorithm.sampler}, variant {algorithm.variant}"
            sides = [Side(name, results, algorithm, name) for name in (first, second)]
            for goal_space in _spaces_of(results, algorithm):
                mine = rows_where(predicting, goal_space=goal_space, **algorithm._asdict())
                if {first, second} <= set(mine["estimator"]):
                    yield Pair(title, goal_space, *sides)

    known = sorted(predicting["estimator"].unique())
    _check_names("--estimators", "estimators", names, known)
    return _first_with_others("--estimators: no run has", names, pairs)


def _check_seeds(results: Results, algorithms: Sequence[Algorithm], goal_space: str) -> bool:
    """Whether both have runs there; InputError where one has a seed that the other lacks."""
    runs = [run for run in results.runs if run.goal_space == goal_space]
    first, second = (
        {run.seed: run for run in runs if run.algorithm == algorithm} for algorithm in algorithms
    )
    for seed in sorted(first.keys() ^ second.keys()):
        run = first.get(seed) or second[seed]
        raise InputError(f"compare: {run_name(run)} is there in one of the two only")
    return bool(first)


def _spaces_of(results: Results, algorithm: Algorithm) -> list[str]:
    return [name for name in results.goal_spaces if algorithm in results.algorithms_in(name)]


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
