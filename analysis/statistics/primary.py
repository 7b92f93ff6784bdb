"""The comparison that was fixed before the runs: the reference against each other algorithm.

Primary metric: mean success over training (score `area`), its mean over the feasible categories of
a run, on the goals that are practised: training goals, unless `goals.split` says otherwise. Second:
the same on the others. The final success stands beside them. Runs of several phases are compared in
their last one: `tables.load` gives its rows alone.

Where episodes end the runs there is a second reading, at equal environment steps: equal episodes
are not equal work, as an episode of an impossible goal never ends early.
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
"""Tests that Holm's correction goes over; with `analysis.family: question` both splits together."""


def run_means(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, score: str = PRIMARY_SCORE
) -> Matrix:
    """Mean of a score over the feasible categories, of each run of an algorithm: (runs,)."""
    return score_matrices(results, algorithm, goal_space, split)[score].mean(axis=1)


def equal_steps(results: Results, goal_space: str) -> float:
    """Environment steps that all runs of a goal space have taken: those of the shortest run."""
    frame = results.table("evaluation", goal_space=goal_space)
    return float(frame.groupby(list(RUN_COLUMNS))["step"].max().min())


def run_means_until(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, limit: float
) -> Matrix:
    """As `run_means`, over the first `limit` environment steps instead of all episodes: (runs,)."""
    curves = success_curves(results, algorithm, goal_space, split).mean(axis=1)
    steps = step_curves(results, algorithm, goal_space, split)[:, 0]
    pairs = zip(curves, steps, strict=True)
    return np.array([matrices.mean_until(curve, of_run, limit) for curve, of_run in pairs])


@register_statistic("comparison")
def comparison(results: Results) -> pd.DataFrame:
    """Difference of the reference and each other algorithm, of every score and split.

    `p`: permutation test of the run means; `p_holm`: corrected over the other algorithms, or these
    on both splits (`analysis.family`);
    `p_paired`: sign-flip test of differences paired by seed, empty where the seeds are not the
    same. Empty where the reference has no run.
    """

    def means(algorithm: Algorithm, goal_space: str, split: str, score: str) -> Matrix:
        return run_means(results, algorithm, goal_space, split, score)

    return _compared(results, means, SCORES, practised_split(results))


@register_statistic("comparison_steps")
def comparison_steps(results: Results) -> pd.DataFrame:
    """The same of mean success over the first environment steps, as many in each run.

    As many as the shortest run of a goal space has: `equal_steps`. Secondary throughout. Empty
    where steps or updates end the runs: these have equal steps already.
    """
    limits = {name: equal_steps(results, name) for name in results.goal_spaces}

    def means(algorithm: Algorithm, goal_space: str, split: str, score: str) -> Matrix:
        return run_means_until(results, algorithm, goal_space, split, limits[goal_space])

    if results.unit != "episodes":
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    return _compared(results, means, (PRIMARY_SCORE,), primary_split="")


Means = Callable[[Algorithm, str, str, str], Matrix]
"""(algorithm, goal space, split, score) to one number of each run, (runs,)."""


def _compared(
    results: Results, means: Means, scores: tuple[str, ...], primary_split: str
) -> pd.DataFrame:
    reference = results.reference
    rows: list[Row] = []
    for goal_space, split, baseline in algorithms_of(results):
        if reference not in results.algorithms_in(goal_space) or baseline == reference:
            continue
        tasks = len(evaluated_categories(results, goal_space, split))
        for score in scores:
            ours, theirs = (
                means(algorithm, goal_space, split, score) for algorithm in (reference, baseline)
            )
            rows.append(
                {
                    "goal_space": goal_space,
                    "split": split,
                    "score": score,
                    "primary": (score, split) == (PRIMARY_SCORE, primary_split),
                    **reference._asdict(),
                    "baseline": baseline.sampler,
                    "baseline_variant": baseline.variant,
                    **_interval(ours, theirs, tasks, bootstrap_of(results)),
                    **_tests(results, goal_space, baseline, (ours, theirs)),
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
    test = intervals.permutation_test(ours, theirs, seed)
    differences = paired(results, goal_space, baseline, means)
    p_paired = np.nan
    if differences is not None:
        p_paired = intervals.sign_flip_test(differences, seed).p
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
