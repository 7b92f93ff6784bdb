"""Power analysis: the seeds that an experiment needs, from the spread between existing runs.

All numbers are of the primary metric: mean success over training, averaged over a run's feasible
categories, on practised goals. They are as uncertain as the estimated spread.
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
    """Deviations of all runs from the mean of their algorithm, unbiased in size: (runs,).

    Deviations from the mean of n runs are too small by sqrt((n - 1) / n); this is corrected.
    Algorithms with a single run are left out.
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
    """Power of a two-sided t test at 5 % with `seeds` runs per side."""
    from scipy.stats import nct, t

    freedom = 2 * np.asarray(seeds) - 2
    critical = t.ppf(1 - ALPHA / 2, freedom)
    shift = difference / (deviation * np.sqrt(2 / np.asarray(seeds)))
    lower_tail = np.nan_to_num(nct.cdf(-critical, freedom, shift))  # NaN where it underflows
    return np.asarray(nct.sf(critical, freedom, shift) + lower_tail)


def seeds_needed(runs: Runs, difference: float, power: float) -> int | None:
    """Fewest seeds per algorithm that reach this power; None: more than `MOST_SEEDS`."""
    deviation = float(np.sqrt((residuals(runs) ** 2).mean()))
    if deviation == 0.0:
        return 2
    seeds = np.arange(2, MOST_SEEDS + 1)
    enough = seeds[t_power(seeds, difference, deviation) >= power]
    return int(enough[0]) if len(enough) else None


def tables(results: Results, difference: float, power: float) -> Iterator[Table]:
    """A table per goal space: seeds needed, by the spread of all runs and of each algorithm."""
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
        groups = {"all algorithms": runs} | {
            algorithm_label(algorithm, results.algorithms): {algorithm: means}
            for algorithm, means in runs.items()
            if len(means) > 1
        }
        rows = [_row(name, group, difference, power) for name, group in groups.items()]
        yield Table(title, NEEDED, rows)


def _row(name: str, runs: Runs, difference: float, power: float) -> list[str]:
    deviations = residuals(runs)
    seeds = seeds_needed(runs, difference, power)
    text = f"more than {MOST_SEEDS:,}" if seeds is None else str(seeds)
    return [name, str(len(deviations)), f"{np.sqrt((deviations**2).mean()):.3f}", text]


# --- how often a small experiment has the order of a reference study ---


def order_chance(better: Matrix, worse: Matrix, sizes: tuple[int, int]) -> float:
    """Chance that a resample of `better` has a larger mean than one of `worse`.

    Args:
        better, worse: run means of two algorithms, (runs,) each.
        sizes: runs drawn from each, with replacement. Equal means count one half.
    """
    rng = np.random.default_rng([SEED, *sizes])
    drawn = [
        means[rng.integers(0, len(means), (EXPERIMENTS, size))].mean(axis=1)
        for means, size in zip((better, worse), sizes, strict=True)
    ]
    return float(0.5 + 0.5 * np.sign(np.round(drawn[0] - drawn[1], 12)).mean())


class OrderInStudy(NamedTuple):
    """The order of two algorithms in a reference study.

    difference: of their mean primary metric in the study, first minus second.
    runs: the study's number of runs of each.
    chance: share of experiments of the given size whose difference has the same sign; equal means
        count one half.
    """

    difference: float
    runs: tuple[int, int]
    chance: float


def order_in(
    study: Results, results: Results, pair: tuple[Algorithm, Algorithm], goal_space: str, split: str
) -> OrderInStudy | None:
    """Order of two algorithms of `results` in `study`, for an experiment of the size of `results`.

    Algorithms are matched by their configuration without seed and budget, not by the name of their
    variant. The study's runs are cut to the length of those of `results`. None if the study lacks
    one of them, has no evaluation at that length, or they are equal in it.
    """
    if goal_space not in study.goal_spaces or study.unit != results.unit:
        return None
    length = evaluation_points(results, goal_space)[-1]
    if length not in evaluation_points(study, goal_space):
        return None
    study = _cut(study, length)
    matches = [
        match for algorithm in pair if (match := _match(study, results, algorithm, goal_space))
    ]
    if len(matches) < 2:
        return None
    means = [run_means(study, match, goal_space, split) for match in matches]
    difference = float(means[0].mean() - means[1].mean())
    if difference == 0.0:
        return None
    if difference < 0.0:
        pair, means = pair[::-1], means[::-1]
    first, second = (len(results.seeds_of(algorithm, goal_space)) for algorithm in pair)
    chance = order_chance(means[0], means[1], (first, second))
    n_first, n_second = (len(study.seeds_of(match, goal_space)) for match in matches)
    return OrderInStudy(difference, (n_first, n_second), chance)


def _match(
    study: Results, results: Results, algorithm: Algorithm, goal_space: str
) -> Algorithm | None:
    """The study's algorithm with the same configuration."""
    config = _config(results, algorithm, goal_space)
    for candidate in study.algorithms_in(goal_space):
        if candidate.sampler == algorithm.sampler and (
            _config(study, candidate, goal_space) == config
        ):
            return candidate
    return None


def _config(results: Results, algorithm: Algorithm, goal_space: str) -> Mapping[str, Any]:
    """The counted values of an algorithm's runs, without seed and budget."""
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


def _cut(study: Results, length: float) -> Results:
    """The study with evaluations up to this training length."""
    evaluation = study.tables["evaluation"]
    evaluation = evaluation[evaluation[study.unit_column] <= length]
    return Results({**study.tables, "evaluation": evaluation}, study.manifest)
