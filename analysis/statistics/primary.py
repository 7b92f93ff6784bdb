"""The pre-registered comparison: the reference against each other algorithm.

Primary metric: mean success over training (score `area`), averaged over a run's feasible
categories, on practised goals: training goals, unless `goals.split` says otherwise. Secondary: the
same on the other split, and final success. Runs of several phases are compared in their last one,
whose rows alone `tables.load` returns.

If episodes end the runs, they are also compared at equal environment steps: equal episodes are not
equal work, as an episode with an impossible goal never ends early.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.statistics import intervals, matrices
from analysis.statistics.registry import register_statistic
from analysis.tables.grid import Algorithm
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
) -> pd.Series:
    """Mean of a score over feasible categories, for each run of an algorithm: (seeds,)."""
    return matrices.run_scores(results, algorithm, goal_space, split, score).mean(axis=1)


@register_statistic("comparison")
def comparison(results: Results) -> pd.DataFrame:
    """Difference between the reference and each other algorithm, for every score and split.

    `p`: permutation test of the run means, which the interval inverts; `p_holm`: corrected over the
    other algorithms, or these on both splits (`analysis.family`); `p_paired`: sign-flip test of
    differences paired by seed, empty if the seeds differ. No rows if the reference has no run.
    """
    return _compare(results, matrices.SCORES)


@register_statistic("comparison_steps")
def comparison_steps(results: Results) -> pd.DataFrame:
    """As `comparison`, over the first environment steps, as many as the shortest run has.

    Secondary throughout. No rows if steps or updates end the runs: their steps are equal already.
    """
    if results.unit != "episodes":
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    return _compare(results, ("equal",)).assign(score=PRIMARY_SCORE)


def _compare(results: Results, scores: tuple[str, ...]) -> pd.DataFrame:
    bootstrap, rows = matrices.bootstrap_of(results), []
    primary = PRIMARY_SCORE, practised_split(results)
    for names, both in matrices.baselines_of(results):
        where = names["goal_space"], names["split"]
        tasks = len(matrices.evaluated_categories(results, *where))
        for score in scores:
            means = [run_means(results, name, *where, score) for name in both]
            first, second = (each.to_numpy() for each in means)
            test = intervals.permutation_test(first, second, bootstrap.confidence, bootstrap.seed)
            method = intervals.TOO_FEW if np.isnan(test.low) else intervals.INVERTED
            row = {**names, "score": score, "p": test.p, "test": test.method}
            row["primary"] = (score, where[1]) == primary
            row |= {"difference": test.value, "low": test.low, "high": test.high}
            row |= matrices.provenance(bootstrap, (len(first), tasks), method)
            row["baseline_runs"] = len(second)
            if means[0].index.equals(means[1].index):
                row["p_paired"] = intervals.sign_flip_test(first - second, seed=bootstrap.seed).p
            rows.append(row)
    frame = pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))
    if len(frame):
        together = matrices.settings(results).family == "question"
        family = [key for key in FAMILY if key != "split" or not together]
        frame["p_holm"] = frame.groupby(family)["p"].transform(intervals.holm)
    return frame
