"""The comparison that was fixed before the runs: the reference against each other algorithm.

Primary metric: mean success over training (score `area`), its mean over the feasible categories of
a run, on training goals. Second: the same on unseen goals. The final success stands beside them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis import intervals, significance
from analysis.grid import Algorithm
from analysis.intervals import Bootstrap, Matrix
from analysis.matrices import (
    SCORES,
    Row,
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    provenance,
    score_matrices,
)
from analysis.results import Results

PRIMARY_SCORE, PRIMARY_SPLIT = "area", "train"

COMPARISON_COLUMNS = (
    "goal_space",
    "split",
    "score",
    "primary",
    "sampler",
    "variant",
    "baseline",
    "baseline_variant",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "p_paired",
    "runs",
    "baseline_runs",
    "tasks",
    "test",
    "method",
    "repetitions",
    "confidence",
)
FAMILY = ["goal_space", "split", "score"]


def run_means(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, score: str = PRIMARY_SCORE
) -> Matrix:
    """Mean of a score over the feasible categories, of each run of an algorithm: (runs,)."""
    return score_matrices(results, algorithm, goal_space, split)[score].mean(axis=1)


def comparison(results: Results) -> pd.DataFrame:
    """Difference of the reference and each other algorithm, of every score and split.

    `p`: permutation test of the run means; `p_holm`: corrected over the other algorithms;
    `p_paired`: sign-flip test of differences paired by seed, empty where the seeds are not the
    same. Empty where the reference has no run.
    """
    reference = results.reference
    rows: list[Row] = []
    for goal_space, split, baseline in algorithms_of(results):
        if reference not in results.algorithms_in(goal_space) or baseline == reference:
            continue
        tasks = len(evaluated_categories(results, goal_space, split))
        for score in SCORES:
            ours, theirs = (
                run_means(results, algorithm, goal_space, split, score)
                for algorithm in (reference, baseline)
            )
            rows.append(
                {
                    "goal_space": goal_space,
                    "split": split,
                    "score": score,
                    "primary": (score, split) == (PRIMARY_SCORE, PRIMARY_SPLIT),
                    **reference._asdict(),
                    "baseline": baseline.sampler,
                    "baseline_variant": baseline.variant,
                    **_interval(ours, theirs, tasks, bootstrap_of(results)),
                    **_tests(results, goal_space, baseline, (ours, theirs)),
                }
            )
    frame = pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))
    if len(frame):
        frame["p_holm"] = frame.groupby(FAMILY)["p"].transform(
            lambda p: significance.holm(p.to_numpy())
        )
    return frame


def _interval(ours: Matrix, theirs: Matrix, tasks: int, bootstrap: Bootstrap) -> Row:
    found = intervals.difference_estimate(ours[:, None], theirs[:, None], bootstrap)
    return {
        **provenance(bootstrap, (len(ours), tasks), found.method[0]),
        "baseline_runs": len(theirs),
        "difference": found.value[0],
        "low": found.low[0],
        "high": found.high[0],
    }


def _tests(
    results: Results, goal_space: str, baseline: Algorithm, means: tuple[Matrix, Matrix]
) -> Row:
    ours, theirs = means
    seed = bootstrap_of(results).seed
    test = significance.permutation_test(ours, theirs, seed)
    differences = paired(results, goal_space, baseline, means)
    p_paired = np.nan
    if differences is not None:
        p_paired = significance.sign_flip_test(differences, seed).p
    return {"p": test.p, "test": test.method, "p_paired": p_paired}


def paired(
    results: Results, goal_space: str, baseline: Algorithm, means: tuple[Matrix, Matrix]
) -> Matrix | None:
    """Differences of runs with the same seed, (seeds,); None where the seeds are not the same.

    Seeds of both stand in the order of the configuration.
    """
    algorithms = results.reference, baseline
    ours, theirs = (results.seeds_of(algorithm, goal_space) for algorithm in algorithms)
    return means[0] - means[1] if ours == theirs else None
