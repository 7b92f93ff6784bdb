"""The pre-registered comparison: the reference against each other algorithm.

Primary metric: mean success over training (score `area`), averaged over a run's feasible
categories, on practised goals: training goals, unless `goals.split` says otherwise. Secondary: the
same on the other split, and final success. Runs of several phases are compared in their last one,
whose rows alone `tables.load` returns.

If episodes end the runs, they are also compared at equal environment steps: equal episodes are not
equal work, as an episode with an impossible goal never ends early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from analysis.statistics import intervals, matrices
from analysis.statistics.intervals import Matrix
from analysis.statistics.registry import register_statistic
from analysis.tables.grid import RUN_COLUMNS, Algorithm
from analysis.tables.phases import practised_split
from analysis.tables.results import Results

PRIMARY_SCORE = "area"

COMPARISON_COLUMNS = (
    *("goal_space", "split", "score", "primary"),
    *("sampler", "variant", "baseline", "baseline_variant"),
    *("difference", "low", "high", "p", "p_holm", "p_paired"),
    *("runs", "baseline_runs", "tasks", "test", "method", "repetitions", "confidence"),
)
FAMILY = ["goal_space", "split", "score"]
"""Keys of a Holm family; with `analysis.family: question` it spans both splits."""


def run_means(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, score: str = PRIMARY_SCORE
) -> Matrix:
    """Mean of a score over feasible categories, for each run of an algorithm: (runs,)."""
    return matrices.score_matrices(results, algorithm, goal_space, split)[score].mean(axis=1)


def other_unit(results: Results) -> str:
    """Column of what a run's budget does not fix: steps if episodes end the runs, else episodes."""
    return "step" if results.unit == "episodes" else "episode"


def equal_length(results: Results, goal_space: str) -> float:
    """Length of the shortest run of a goal space, in `other_unit`."""
    frame = results.table("evaluation", goal_space=goal_space)
    return float(frame.groupby(list(RUN_COLUMNS))[other_unit(results)].max().min())


def means_at_equal_length(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> Matrix:
    """Mean success up to `equal_length` instead of over all training: (runs, categories)."""
    where = results, algorithm, goal_space, split
    both = ("success", other_unit(results))
    curves, points = (matrices.success_curves(*where, column) for column in both)
    limit = equal_length(results, goal_space)
    return np.array(
        [
            [matrices.mean_until(curve, at, limit) for curve in run]
            for run, (at, *_) in zip(curves, points, strict=True)
        ]
    )


@register_statistic("comparison")
def comparison(results: Results) -> pd.DataFrame:
    """Difference between the reference and each other algorithm, for every score and split.

    `p`: permutation test of the run means, which the interval inverts; `p_holm`: corrected over the
    other algorithms, or these on both splits (`analysis.family`); `p_paired`: sign-flip test of
    differences paired by seed, empty if the seeds differ. No rows if the reference has no run.
    """
    return _compare(results, partial(run_means, results), matrices.SCORES, practised_split(results))


@register_statistic("comparison_steps")
def comparison_steps(results: Results) -> pd.DataFrame:
    """As `comparison`, over the first environment steps, as many as the shortest run has.

    Secondary throughout. No rows if steps or updates end the runs: their steps are equal already.
    """

    def means(algorithm: Algorithm, goal_space: str, split: str, score: str) -> Matrix:
        return means_at_equal_length(results, algorithm, goal_space, split).mean(axis=1)

    if results.unit != "episodes":
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    return _compare(results, means, (PRIMARY_SCORE,), primary_split="")


Means = Callable[[Algorithm, str, str, str], Matrix]
"""(algorithm, goal space, split, score) -> one number per run, (runs,)."""


def _compare(
    results: Results, means: Means, scores: tuple[str, ...], primary_split: str
) -> pd.DataFrame:
    bootstrap, rows = matrices.bootstrap_of(results), []
    for names, both in matrices.baselines_of(results):
        where = names["goal_space"], names["split"]
        tasks = len(matrices.evaluated_categories(results, *where))
        seeds, others = (results.seeds_of(name, where[0]) for name in both)
        for score in scores:
            first, second = (means(name, *where, score) for name in both)
            test = intervals.permutation_test(first, second, bootstrap.confidence, bootstrap.seed)
            method = intervals.TOO_FEW if np.isnan(test.low) else intervals.INVERTED
            row = {**names, "score": score, "p": test.p, "test": test.method}
            row["primary"] = (score, where[1]) == (PRIMARY_SCORE, primary_split)
            row |= {"difference": test.value, "low": test.low, "high": test.high}
            row |= matrices.provenance(bootstrap, (len(first), tasks), method)
            row["baseline_runs"] = len(second)
            if seeds == others:
                row["p_paired"] = intervals.sign_flip_test(first - second, seed=bootstrap.seed).p
            rows.append(row)
    frame = pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))
    if len(frame):
        together = matrices.settings(results).family == "question"
        family = [key for key in FAMILY if key != "split" or not together]
        frame["p_holm"] = frame.groupby(family)["p"].transform(intervals.holm)
    return frame
