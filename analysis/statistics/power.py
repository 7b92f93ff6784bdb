"""Power analysis: the seeds that an experiment needs, from the spread between existing runs.

All numbers are of the primary metric: mean success over training, averaged over a run's feasible
categories, on practised goals. They are as uncertain as the estimated spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from analysis.statistics.intervals import Matrix
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm
from analysis.tables.labels import SPLIT_LABELS, algorithm_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results
from magellan.core.errors import InputError

ALPHA = 0.05
MOST_SEEDS = 1_000
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
    split = practised_split(results)
    for goal_space in results.goal_spaces:
        runs = {
            algorithm: run_means(results, algorithm, goal_space, split)
            for algorithm in results.algorithms_in(goal_space)
        }
        title = (
            f"Seeds per algorithm to find a difference of {difference:g} with a chance of "
            f"{power:.0%}, goal space {goal_space} (two-sided t test at 5 %, mean success over "
            f"training{results.counted_from}, {SPLIT_LABELS[split].lower()})"
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
