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

import numpy as np
import pandas as pd

from analysis.statistics import intervals, matrices
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.statistics.matrices import (
    SCORES,
    Row,
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    provenance,
    score_matrices,
    settings,
    step_curves,
    success_curves,
)
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
    return score_matrices(results, algorithm, goal_space, split)[score].mean(axis=1)


def equal_steps(results: Results, goal_space: str) -> float:
    """Environment steps of the shortest run of a goal space."""
    frame = results.table("evaluation", goal_space=goal_space)
    return float(frame.groupby(list(RUN_COLUMNS))["step"].max().min())


def run_means_until(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, limit: float
) -> Matrix:
    """As `run_means`, over the first `limit` environment steps instead of all episodes: (runs,)."""
    curves = success_curves(results, algorithm, goal_space, split).mean(axis=1)
    steps = step_curves(results, algorithm, goal_space, split)[:, 0]
    runs = zip(curves, steps, strict=True)
    return np.array([matrices.mean_until(curve, points, limit) for curve, points in runs])


@register_statistic("comparison")
def comparison(results: Results) -> pd.DataFrame:
    """Difference between the reference and each other algorithm, for every score and split.

    `p`: permutation test of the run means; `p_holm`: corrected over the other algorithms, or these
    on both splits (`analysis.family`); `p_paired`: sign-flip test of differences paired by seed,
    empty if the seeds differ. No rows if the reference has no run.
    """

    def means(algorithm: Algorithm, goal_space: str, split: str, score: str) -> Matrix:
        return run_means(results, algorithm, goal_space, split, score)

    return _compare(results, means, SCORES, practised_split(results))


@register_statistic("comparison_steps")
def comparison_steps(results: Results) -> pd.DataFrame:
    """As `comparison`, over the first environment steps, as many as the shortest run has.

    Secondary throughout. No rows if steps or updates end the runs: their steps are equal already.
    """
    limits = {name: equal_steps(results, name) for name in results.goal_spaces}

    def means(algorithm: Algorithm, goal_space: str, split: str, score: str) -> Matrix:
        return run_means_until(results, algorithm, goal_space, split, limits[goal_space])

    if results.unit != "episodes":
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    return _compare(results, means, (PRIMARY_SCORE,), primary_split="")


Means = Callable[[Algorithm, str, str, str], Matrix]
"""(algorithm, goal space, split, score) -> one number per run, (runs,)."""


def _compare(
    results: Results, means: Means, scores: tuple[str, ...], primary_split: str
) -> pd.DataFrame:
    reference = results.reference
    rows: list[Row] = []
    for goal_space, split, baseline in algorithms_of(results):
        if reference not in results.algorithms_in(goal_space) or baseline == reference:
            continue
        tasks = len(evaluated_categories(results, goal_space, split))
        for score in scores:
            first = means(reference, goal_space, split, score)
            second = means(baseline, goal_space, split, score)
            rows.append(
                {
                    "goal_space": goal_space,
                    "split": split,
                    "score": score,
                    "primary": (score, split) == (PRIMARY_SCORE, primary_split),
                    **reference._asdict(),
                    "baseline": baseline.sampler,
                    "baseline_variant": baseline.variant,
                    **_interval(first, second, tasks, bootstrap_of(results)),
                    **_tests(results, goal_space, baseline, (first, second)),
                }
            )
    frame = pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))
    if len(frame):
        together = settings(results).family == "question"
        family = [key for key in FAMILY if key != "split" or not together]
        frame["p_holm"] = frame.groupby(family)["p"].transform(
            lambda p: intervals.holm(p.to_numpy())
        )
    return frame


def _interval(first: Matrix, second: Matrix, tasks: int, bootstrap: Bootstrap) -> Row:
    estimate = intervals.difference_estimate(first[:, None], second[:, None], bootstrap)
    return {
        **provenance(bootstrap, (len(first), tasks), estimate.method[0]),
        "baseline_runs": len(second),
        "difference": estimate.value[0],
        "low": estimate.low[0],
        "high": estimate.high[0],
    }


def _tests(
    results: Results, goal_space: str, baseline: Algorithm, means: tuple[Matrix, Matrix]
) -> Row:
    seed = bootstrap_of(results).seed
    test = intervals.permutation_test(*means, seed)
    differences = paired(results, goal_space, baseline, means)
    p_paired = np.nan
    if differences is not None:
        p_paired = intervals.sign_flip_test(differences, seed).p
    return {"p": test.p, "test": test.method, "p_paired": p_paired}


def paired(
    results: Results, goal_space: str, baseline: Algorithm, means: tuple[Matrix, Matrix]
) -> Matrix | None:
    """Differences of runs with the same seed, (seeds,), in the order of the configuration.

    None if the seeds of the reference and the baseline differ.
    """
    seeds = results.seeds_of(results.reference, goal_space)
    return means[0] - means[1] if seeds == results.seeds_of(baseline, goal_space) else None
