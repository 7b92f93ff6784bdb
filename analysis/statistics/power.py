"""How many seeds an experiment needs, from the spread between the runs of one that is there.

All numbers are about the primary metric: mean success over training, mean over the feasible
categories of a run, on the goals that are practised. They are as uncertain as the spread that they
rest on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.statistics.intervals import Matrix
from analysis.statistics.matrices import evaluation_points
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm
from analysis.tables.labels import algorithm_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results
from magellan.core.errors import InputError

ALPHA = 0.05
EXPERIMENTS = 4_000
MOST_SEEDS = 1_000
SEED = 0
SIZES = (4, 5, 8, 10, 20)

Runs = Mapping[Algorithm, Matrix]
"""Run means of each algorithm, (runs,)."""


class Needed(NamedTuple):
    """Seeds per algorithm by both ways of counting; None: more than `MOST_SEEDS`."""

    approximated: int | None
    simulated: int | None


class Order(NamedTuple):
    """Two algorithms, the difference of their means, and chances to see its sign."""

    better: Algorithm
    worse: Algorithm
    difference: float
    chances: tuple[float, ...]


def residuals(runs: Runs) -> Matrix:
    """Deviations of runs from the mean of their algorithm, all together, in full size: (runs,).

    Those of n runs are smaller than the true ones by sqrt((n - 1) / n); they are stretched by that.
    Algorithms with a single run say nothing about spread.
    """
    parts = [
        (means - means.mean()) * np.sqrt(len(means) / (len(means) - 1))
        for means in runs.values()
        if len(means) > 1
    ]
    if not parts:
        raise InputError("power: no algorithm has two runs or more, so there is no spread")
    return np.concatenate(parts)


def t_power(seeds: int, difference: float, deviation: float) -> float:
    """Chance that a two-sided t test at 5 % finds a difference, with so many seeds each."""
    from scipy.stats import nct, t

    if deviation == 0.0:
        return 1.0
    freedom = 2 * seeds - 2
    critical = t.ppf(1 - ALPHA / 2, freedom)
    shift = difference / (deviation * np.sqrt(2 / seeds))
    other_side = np.nan_to_num(nct.cdf(-critical, freedom, shift))  # NaN where it is far below 0
    return float(nct.sf(critical, freedom, shift) + other_side)


def simulated_power(seeds: int, difference: float, spread: Matrix) -> float:
    """The same, of experiments of runs drawn from those that are there.

    Args:
        seeds: runs of each of the two samples.
        difference: added to all runs of one of them.
        spread: `residuals`.
    """
    from scipy.stats import t

    rng = np.random.default_rng([SEED, seeds])
    ours, theirs = spread[rng.integers(0, len(spread), (2, EXPERIMENTS, seeds))]
    shift = np.abs(ours.mean(axis=1) + difference - theirs.mean(axis=1))
    error = np.sqrt((ours.var(axis=1, ddof=1) + theirs.var(axis=1, ddof=1)) / seeds)
    return float((shift >= t.ppf(1 - ALPHA / 2, 2 * seeds - 2) * error).mean())


def seeds_needed(runs: Runs, difference: float, power: float) -> Needed:
    """Fewest seeds of each algorithm that find such a difference with such a chance."""
    spread = residuals(runs)
    deviation = float(np.sqrt((spread**2).mean()))

    def enough(seeds: int) -> bool:
        return t_power(seeds, difference, deviation) >= power

    def enough_simulated(seeds: int) -> bool:
        return simulated_power(seeds, difference, spread) >= power

    return Needed(_fewest(enough), _fewest(enough_simulated))


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Smallest number from 2 on that is enough, where all larger ones are as well."""
    if not enough(MOST_SEEDS):
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def order_chances(runs: Runs, sizes: Sequence[int]) -> list[Order]:
    """For each pair: how often experiments of n runs each have the means in the observed order.

    Experiments are drawn from the observed runs, as if these were all there could be. Equal means
    count one half.
    """
    found = []
    for one, other in itertools.combinations(runs, 2):
        better, worse = sorted((one, other), key=lambda name: -runs[name].mean())
        chances = tuple(order_chance(runs[better], runs[worse], (size, size)) for size in sizes)
        difference = float(runs[better].mean() - runs[worse].mean())
        found.append(Order(better, worse, difference, chances))
    return found


def order_chance(better: Matrix, worse: Matrix, sizes: tuple[int, int]) -> float:
    """Chance that the first has the larger mean, with so many runs of each drawn from those there.

    Args:
        better, worse: run means of two algorithms, (runs,) each.
        sizes: runs drawn of each, with replacement. Equal means count one half.
    """
    rng = np.random.default_rng([SEED, *sizes])
    drawn = [
        means[rng.integers(0, len(means), (EXPERIMENTS, size))].mean(axis=1)
        for means, size in zip((better, worse), sizes, strict=True)
    ]
    return float(0.5 + 0.5 * np.sign(np.round(drawn[0] - drawn[1], 12)).mean())


# --- tables ---------------------------------------------------------------------------------------

NEEDED = ("spread of", "runs", "standard deviation", "seeds, t approximation", "seeds, simulated")


def tables(
    results: Results, difference: float, power: float, sizes: Sequence[int] = SIZES
) -> Iterator[Table]:
    """Seeds needed and chances of the right order, of every goal space."""
    for goal_space in results.goal_spaces:
        runs = {
            algorithm: run_means(results, algorithm, goal_space, practised_split(results))
            for algorithm in results.algorithms_in(goal_space)
        }
        yield _needed_table(results, goal_space, runs, difference, power)
        if len(runs) > 1:
            yield _order_table(results, goal_space, runs, sizes)


def _needed_table(
    results: Results, goal_space: str, runs: Runs, difference: float, power: float
) -> Table:
    title = (
        f"Seeds per algorithm to find a difference of {difference:g} with a chance of "
        f"{power:.0%}, goal space {goal_space} (two-sided test at 5 %, mean success over "
        "training, training goals)"
    )
    rows = []
    everyone = {"all algorithms": runs}
    alone = {
        algorithm_label(algorithm, results.algorithms): {algorithm: means}
        for algorithm, means in runs.items()
        if len(means) > 1
    }
    for name, chosen in {**everyone, **alone}.items():
        spread = residuals(chosen)
        needed = seeds_needed(chosen, difference, power)
        deviation = f"{np.sqrt((spread**2).mean()):.3f}"
        rows.append([name, str(len(spread)), deviation, *map(_seeds, needed)])
    return Table(title, NEEDED, rows)


def _seeds(number: int | None) -> str:
    return f"more than {MOST_SEEDS:,}" if number is None else str(number)


def _order_table(results: Results, goal_space: str, runs: Runs, sizes: Sequence[int]) -> Table:
    title = (
        f"Chance that an experiment of n seeds each has a pair in this order, goal space "
        f"{goal_space} (drawn from the runs that are there, as if their means were the truth)"
    )
    header = ["better", "worse", "better minus worse", *(f"n = {n}" for n in sizes)]
    rows = []
    for order in order_chances(runs, sizes):
        names = (algorithm_label(name, results.algorithms) for name in order[:2])
        chances = (f"{chance:.2f}" for chance in order.chances)
        rows.append([*names, f"{order.difference:.3f}", *chances])
    return Table(title, header, rows)


# --- how often a small experiment gets the order of a reference study right ---


class OrderInStudy(NamedTuple):
    """What a reference study says of two algorithms.

    difference: of their mean primary metric there, the first minus the second.
    runs: how many runs it has of each.
    chance: share of experiments of the asked size whose difference has the same sign; equal means
        count one half.
    """

    difference: float
    runs: tuple[int, int]
    chance: float


def order_in(
    study: Results, results: Results, pair: tuple[Algorithm, Algorithm], goal_space: str, split: str
) -> OrderInStudy | None:
    """What `study` says of two algorithms of `results`, for an experiment of the size of `results`.

    The algorithms are found by what they are (every value that counts, but the seed and how long
    and how often runs are looked at), not by the name of their variant. The study's runs count up
    to the length of those of `results`. None where the study lacks one of them, has no evaluation
    at that length, or they are equal in it.
    """
    if goal_space not in study.goal_spaces or study.unit != results.unit:
        return None
    length = evaluation_points(results, goal_space)[-1]
    if length not in evaluation_points(study, goal_space):
        return None
    study = _until(study, length)
    found = [_same(study, results, algorithm, goal_space) for algorithm in pair]
    if None in found:
        return None
    means = [run_means(study, each, goal_space, split) for each in found if each is not None]
    difference = float(means[0].mean() - means[1].mean())
    if difference == 0.0:
        return None
    if difference < 0.0:
        pair, means = pair[::-1], means[::-1]
    first, second = (len(results.seeds_of(algorithm, goal_space)) for algorithm in pair)
    chance = order_chance(means[0], means[1], (first, second))
    runs = tuple(len(study.seeds_of(each, goal_space)) for each in found if each is not None)
    return OrderInStudy(difference, (runs[0], runs[1]), chance)


def _same(
    study: Results, results: Results, algorithm: Algorithm, goal_space: str
) -> Algorithm | None:
    """The algorithm of the study that is what this one is."""
    wanted = _counted(results, algorithm, goal_space)
    for each in study.algorithms_in(goal_space):
        if each.sampler == algorithm.sampler and _counted(study, each, goal_space) == wanted:
            return each
    return None


def _counted(results: Results, algorithm: Algorithm, goal_space: str) -> Mapping[str, Any]:
    """Every value that counts for how the runs of an algorithm learn, but the seed."""
    place = {**algorithm._asdict(), "goal_space": goal_space}
    run = next(
        manifest
        for manifest in results.manifest["runs"]
        if all(manifest[key] == value for key, value in place.items())
    )
    return {
        key: value
        for key, value in run["counted"].items()
        if key != "seed" and not key.startswith("budget.")
    }


def _until(study: Results, length: float) -> Results:
    """The study as it would be, had its runs ended there."""
    evaluation = study.tables["evaluation"]
    cut = evaluation[evaluation[study.at] <= length]
    return Results({**study.tables, "evaluation": cut}, study.manifest)
