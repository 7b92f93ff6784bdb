"""Paired comparisons of runs that differ in one setting.

Variants, samplers or estimators of one experiment, paired by goal space and seed, in mean success
over training or in the error of the predicted competence. The difference in a category is the mean
over seeds, with a studentised bootstrap interval. Only the mean of the categories, one number per
run, has a test: sign flips of the pairs, Holm-corrected if one side is compared with several. With
samplers and variants together the interaction is compared: a sampler's lead in one variant with its
lead in another. Runs of several phases are compared in their last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analysis.statistics import summaries
from analysis.statistics.intervals import (
    EQUAL,
    SINGLE,
    Bootstrap,
    Matrix,
    holm,
    mean_estimate,
    sign_flip_test,
)
from analysis.statistics.matrices import evaluated_categories, score_matrices, settings
from analysis.tables.grid import Algorithm, run_name, variant_names
from analysis.tables.printing import Table, interval_cell
from analysis.tables.results import SPLITS, Results, rows_where
from magellan.core.errors import InputError

FEWEST = 2
BOOTSTRAP = Bootstrap(repetitions=9_999)
NONE = "none: all differences equal"
"""Shown instead of an interval; the tables of statistics say `none: all runs equal`."""

Interval = tuple[float, float]


class Side(NamedTuple):
    """One side of a comparison: an algorithm of some tables, and its name.

    estimator: whose predictions to use; empty: the driver's, or the only observer's.
    minus: algorithm of these tables whose numbers are subtracted seed by seed; None: none.
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


def mean_difference(differences: Matrix, most: float = 1.0) -> tuple[float, Interval | None]:
    """Mean of differences (seeds,) and its interval; None for a single seed or equal values.

    most: largest possible size of a difference; 2 for a difference of differences.
    """
    estimate = mean_estimate(differences[:, None], BOOTSTRAP, (-most, most))
    has_interval = estimate.method[0] not in (SINGLE, EQUAL)
    interval = (float(estimate.low[0]), float(estimate.high[0])) if has_interval else None
    return float(differences.mean()), interval


# --- pairs ------------------------------------------------------------------------------------


def pairs_of_variants(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first variant with each other one, for every sampler and goal space that has both.

    Raises:
        InputError: unknown variants, a pair that no sampler has, or one has a seed that the other
            lacks.
    """
    _check_names("variants", names, variant_names(results.experiment))
    samplers = dict.fromkeys(algorithm.sampler for algorithm in results.algorithms)
    sides = [
        (f"sampler {sampler}", [Side(name, results, Algorithm(sampler, name)) for name in names])
        for sampler in samplers
    ]
    return _first_with_others("--variants: no sampler has runs of", names, sides)


def pairs_of_samplers(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first sampler with each other one, of the same variant, seeds and goal space.

    Raises:
        InputError: unknown samplers, a pair that no variant has, or one has a seed that the other
            lacks.
    """
    _check_names("samplers", names, results.experiment["samplers"])
    variants = dict.fromkeys(algorithm.variant for algorithm in results.algorithms)
    sides = [
        (f"variant {variant}", [Side(name, results, Algorithm(name, variant)) for name in names])
        for variant in variants
    ]
    return _first_with_others("--samplers: no variant has runs of", names, sides)


def pairs_of_interactions(
    results: Results, samplers: Sequence[str], variants: Sequence[str]
) -> list[Pair]:
    """The lead of the first sampler over each other one, in the first variant and each other one.

    The numbers of a side are differences of two samplers in one variant.

    Raises:
        InputError: unknown samplers or variants, or a run is missing.
    """
    _check_names("samplers", samplers, results.experiment["samplers"])
    _check_names("variants", variants, variant_names(results.experiment))
    required = {Algorithm(*names) for names in itertools.product(samplers, variants)}
    for absent in sorted(required - set(results.algorithms)):
        raise InputError(
            f"--variants: sampler {absent.sampler!r} has no runs of {absent.variant!r}; "
            "allowed: variants that all these samplers have"
        )
    first, *others = samplers
    sides = [
        (f"{first} minus others", [_lead(results, first, second, name) for name in variants])
        for second in others
    ]
    return _first_with_others("--variants: no sampler has runs of", variants, sides)


def _lead(results: Results, first: str, second: str, variant: str) -> Side:
    name = f"{first} minus {second}, {variant}"
    return Side(name, results, Algorithm(first, variant), minus=Algorithm(second, variant))


def pairs_of_estimators(results: Results, names: Sequence[str]) -> list[Pair]:
    """The first estimator with each other one, where both have predictions of the same runs.

    Raises:
        InputError: unknown estimators, or a pair that no run has.
    """
    _check_names("estimators", names, sorted(results.tables["competence"]["estimator"].unique()))
    sides = [
        (f"sampler {a.sampler}, variant {a.variant}", [Side(n, results, a, n) for n in names])
        for a in results.algorithms
    ]
    return _first_with_others("--estimators: no run has", names, sides)


def _check_names(kind: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    for name in names:
        if name not in allowed:
            raise InputError(
                f"--{kind}: {name!r} is unknown; allowed: {', '.join(allowed) or 'none'}"
            )
        if names.count(name) > 1:
            raise InputError(f"--{kind}: {name!r} is given twice; allowed: different {kind}")
    if len(names) < FEWEST:
        raise InputError(f"--{kind}: {names[0]!r} is the only one; allowed: two {kind} or more")


def _first_with_others(
    no_runs: str, names: Sequence[str], candidates: Sequence[tuple[str, Sequence[Side]]]
) -> list[Pair]:
    """Pairs of the first name with each other one, in each goal space that has runs of both.

    Args:
        no_runs: beginning of the error for a pair without runs.
        names: names to compare.
        candidates: titles, each with a side for each name.
    """
    pairs: list[Pair] = []
    for at, name in enumerate(names[1:], start=1):
        matches = [
            Pair(title, goal_space, sides[0], sides[at])
            for title, sides in candidates
            for goal_space in sides[0].results.goal_spaces
            if _have_runs(sides[0], sides[at], goal_space)
        ]
        if not matches:
            raise InputError(f"{no_runs} both {names[0]!r} and {name!r}")
        pairs += matches
    return pairs


def _have_runs(first: Side, second: Side, goal_space: str) -> bool:
    """Whether both have runs in a goal space; InputError if their seeds differ."""
    runs = [run for run in first.results.runs if run.goal_space == goal_space]
    algorithms = [first.algorithm, first.minus, second.algorithm, second.minus]
    algorithms = [algorithm for algorithm in algorithms if algorithm]
    if not set(algorithms) <= set(first.results.algorithms):
        return False  # a variant that makes no difference to a sampler has no runs of it
    seeds = [
        {run.seed: run for run in runs if run.algorithm == algorithm} for algorithm in algorithms
    ]
    for by_seed in seeds[1:]:
        for seed in sorted(by_seed.keys() ^ seeds[0].keys()):
            run = by_seed.get(seed) or seeds[0][seed]
            raise InputError(f"compare: {run_name(run)} exists on one side only")
    return bool(seeds[0]) and all(_has_predictions(side, goal_space) for side in (first, second))


def _has_predictions(side: Side, goal_space: str) -> bool:
    """Whether a side's estimator has predictions; True if it names none."""
    where = {"goal_space": goal_space, "estimator": side.estimator, **side.algorithm._asdict()}
    return not side.estimator or len(side.results.table("competence", **where)) > 0


# --- measures ---------------------------------------------------------------------------------

Scores = tuple[list[str], Matrix]
"""Names of the categories, and a number for each run: (increasing seeds, categories)."""


def success_of(side: Side, goal_space: str, split: str) -> Scores:
    """Mean success over training: area under the learning curve divided by its length."""
    area = _area(side.results, side.algorithm, goal_space, split)
    if side.minus is not None:
        area = area - _area(side.results, side.minus, goal_space, split)
    return list(evaluated_categories(side.results, goal_space, split)), area


def _area(results: Results, algorithm: Algorithm, goal_space: str, split: str) -> Matrix:
    """(increasing seeds, categories)."""
    order = np.argsort(results.seeds_of(algorithm, goal_space))
    return score_matrices(results, algorithm, goal_space, split)["area"][order]


def error_of(side: Side, goal_space: str, split: str) -> Scores:
    """Mean over evaluations of |predicted competence - observed success|, with impossible goals.

    Raises:
        InputError: there are no predictions, or several observers and no driver.
    """
    results, algorithm = side.results, side.algorithm
    where = {"goal_space": goal_space, "split": split, **algorithm._asdict()}
    frame = rows_where(summaries.calibration(results), **where)
    estimators = list(dict.fromkeys(frame["estimator"]))
    preferred = side.estimator or results.driver_of(algorithm)
    candidates = [name for name in estimators if name == preferred] or estimators
    if len(candidates) != 1:
        listed = ", ".join(candidates) or "none"
        raise InputError(
            f"--of error: sampler {algorithm.sampler!r} needs one estimator; found: {listed}"
        )
    errors = rows_where(frame, estimator=candidates[0]).pivot_table(
        index="seed", columns="category", values="mean_absolute_error"
    )
    names = [name for name in results.categories.names if name in errors.columns]
    return names, errors[names].sort_index().to_numpy()


MEASURES: Mapping[str, tuple[str, Callable[[Side, str, str], Scores]]] = {
    "success": ("Mean success over training", success_of),
    "error": ("Error of the predicted competence, mean over training", error_of),
}
"""Title of a number for each run and category, and the function that reads it."""


# --- tables -----------------------------------------------------------------------------------


def tables(
    pairs: Sequence[Pair], of: str = "success", splits: Sequence[str] = SPLITS, truth: str = ""
) -> list[Table]:
    """One table per pair: a row per split and category, and one for the mean of the categories.

    Differences are the first side minus the second; that of the mean also in both halves of the
    seeds. If one side is compared with several, p values are Holm-corrected over these, on each
    split or on both together (`analysis.family`).

    Args:
        pairs: sides to compare.
        of: a key of `MEASURES`.
        splits: splits of the goals.
        truth: reference of the errors; empty: observed success.
    """
    title, scores_of = MEASURES[of]
    title += f" against {truth}" if truth else ""
    families: dict[tuple[str, str], list[Compared]] = {}
    for pair in pairs:
        compared = _compare(pair, scores_of, splits)
        families.setdefault((pair.title, pair.goal_space), []).append(compared)
    return [_table(title, family, compared) for family in families.values() for compared in family]


class Compared(NamedTuple):
    """A pair's scores by split (categories, both sides (seeds, categories)), and p of the mean."""

    pair: Pair
    scores: dict[str, tuple[list[str], Matrix, Matrix]]
    p: dict[str, float]


def _compare(
    pair: Pair, scores_of: Callable[[Side, str, str], Scores], splits: Sequence[str]
) -> Compared:
    scores, p = {}, {}
    for split in splits:
        categories, first = scores_of(pair.first, pair.goal_space, split)
        _, second = scores_of(pair.second, pair.goal_space, split)
        scores[split] = categories, first, second
        p[split] = sign_flip_test((first - second).mean(axis=1), BOOTSTRAP.seed).p
    return Compared(pair, scores, p)


def _table(measure: str, family: Sequence[Compared], compared: Compared) -> Table:
    pair = compared.pair
    names = pair.first.name, pair.second.name
    tests = len(_correction_family(family, compared, next(iter(compared.p))))
    header = ["split", "category", *names, "difference"]
    header += [f"{BOOTSTRAP.confidence:.0%} interval", "n", "halves of the seeds", "p"]
    header += ["p, uncorrected"] * (tests > 1)
    rows = []
    for split, (categories, first, second) in compared.scores.items():
        p_values = [compared.p[split]]
        if tests > 1:
            p_values.insert(0, _holm_corrected_p(family, compared, split))
        for column, category in enumerate(categories):
            empty = [""] * (1 + len(p_values))
            rows.append(_row([split, category], first[:, column], second[:, column], empty))
        means = first.mean(axis=1), second.mean(axis=1)
        tested = [halves(means[0] - means[1]), *(f"{p:.3f}" for p in p_values)]
        rows.append(_row([split, "mean"], *means, tested))
    measured = measure + pair.first.results.counted_from
    holm = f", Holm over {tests}" if tests > 1 else ""
    title = (
        f"{measured}, {pair.title}, goal space {pair.goal_space}: "
        f"{minus(names)} (sign flips of pairs by seed{holm})"
    )
    return Table(title, header, rows)


def minus(names: Sequence[str]) -> str:
    """`A minus B`, with brackets around names that are differences themselves."""
    return " minus ".join(f"({name})" if " minus " in name else name for name in names)


def _holm_corrected_p(family: Sequence[Compared], compared: Compared, split: str) -> float:
    """p of a pair on a split after Holm's correction over its family."""
    tests = _correction_family(family, compared, split)
    index = [member is compared and name == split for member, name in tests].index(True)
    return float(holm(np.array([member.p[name] for member, name in tests]))[index])


def _correction_family(
    family: Sequence[Compared], compared: Compared, split: str
) -> list[tuple[Compared, str]]:
    """Pairs and splits that are corrected together with this split of a pair."""
    together = settings(compared.pair.first.results).family == "question"
    return [(member, name) for member in family for name in compared.p if together or name == split]


def halves(values: Matrix) -> str:
    """Means of both halves of (increasing seeds,); empty for fewer than four seeds."""
    middle = len(values) // 2
    return f"{values[:middle].mean():+.2f}, {values[middle:].mean():+.2f}" if middle > 1 else ""


def _row(names: list[str], first: Matrix, second: Matrix, tested: list[str]) -> list[str]:
    difference, interval = mean_difference(first - second, 2.0)
    bounds = "n/a" if len(first) == 1 else NONE
    if interval is not None:
        bounds = interval_cell(*interval)
    means = [f"{first.mean():.3f}", f"{second.mean():.3f}", f"{difference:+.3f}"]
    return [*names, *means, bounds, str(len(first)), *tested]
