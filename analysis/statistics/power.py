"""How many seeds an experiment needs, from the spread between the runs of one that is there.

All numbers are about the primary metric: mean success over training, mean over the feasible
categories of a run, on the goals that are practised. They are as uncertain as the spread that they
rest on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from analysis.statistics.intervals import Matrix
from analysis.statistics.matrices import evaluation_points
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm, run_of
from analysis.tables.labels import algorithm_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results
from magellan.core.errors import InputError

ALPHA = 0.05
EXPERIMENTS = 4_000
MOST_SEEDS = 1_000
SEED = 0
NEEDED = ("spread of", "runs", "standard deviation", "seeds")

Runs = Mapping[Algorithm, Matrix]
"""Run means of each algorithm, (runs,)."""


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


def t_power(seeds: Any, difference: float, deviation: float) -> Matrix:
    """Chance that a two-sided t test at 5 % finds a difference, with so many seeds each."""
    from scipy.stats import nct, t

    freedom = 2 * np.asarray(seeds) - 2
    critical = t.ppf(1 - ALPHA / 2, freedom)
    shift = difference / (deviation * np.sqrt(2 / np.asarray(seeds)))
    other_side = np.nan_to_num(nct.cdf(-critical, freedom, shift))  # NaN where it is far below 0
    return np.asarray(nct.sf(critical, freedom, shift) + other_side)


def seeds_needed(runs: Runs, difference: float, power: float) -> int | None:
    """Fewest seeds of each algorithm that find such a difference; None: above `MOST_SEEDS`."""
    deviation = float(np.sqrt((residuals(runs) ** 2).mean()))
    if deviation == 0.0:
        return 2
    seeds = np.arange(2, MOST_SEEDS + 1)
    enough = seeds[t_power(seeds, difference, deviation) >= power]
    return int(enough[0]) if len(enough) else None


def tables(results: Results, difference: float, power: float) -> Iterator[Table]:
    """Seeds needed, by the spread of all runs and by that of each algorithm; one a goal space."""
    for goal_space in results.goal_spaces:
        runs = {
            algorithm: run_means(results, algorithm, goal_space, practised_split(results))
            for algorithm in results.algorithms_in(goal_space)
        }
        title = (
            f"Seeds per algorithm to find a difference of {difference:g} with a chance of "
            f"{power:.0%}, goal space {goal_space} (two-sided t test at 5 %, mean success over "
            "training, training goals)"
        )
        chosen = {"all algorithms": runs} | {
            algorithm_label(algorithm, results.algorithms): {algorithm: means}
            for algorithm, means in runs.items()
            if len(means) > 1
        }
        rows = [_needed(name, each, difference, power) for name, each in chosen.items()]
        yield Table(title, NEEDED, rows)


def _needed(name: str, runs: Runs, difference: float, power: float) -> list[str]:
    spread = residuals(runs)
    seeds = seeds_needed(runs, difference, power)
    words = f"more than {MOST_SEEDS:,}" if seeds is None else str(seeds)
    return [name, str(len(spread)), f"{np.sqrt((spread**2).mean()):.3f}", words]


# --- how often a small experiment gets the order of a reference study right ---


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
    run = next(
        manifest
        for manifest in results.manifest["runs"]
        if run_of(manifest)[:3] == (*algorithm, goal_space)
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
