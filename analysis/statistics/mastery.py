"""Time to mastery of every category, with a test of the reference against each other algorithm."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.statistics import intervals, matrices
from analysis.statistics.intervals import Matrix
from analysis.statistics.matrices import Row
from analysis.statistics.registry import register_statistic
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results

MASTERY_COLUMNS = (
    *("goal_space", "split", "category", "sampler", "variant", "runs", "mastered"),
    *("restricted_mean", "low", "high", "median", "limit", "log_rank", "p", "p_holm"),
    *("method", "repetitions", "confidence"),
)
FAMILY = ["goal_space", "split", "category"]


def times_of(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Times]:
    """Times to mastery of an algorithm's runs, by category."""
    curves = matrices.success_curves(results, algorithm, goal_space, split)
    points = matrices.evaluation_points(results, goal_space)
    return {
        category: mastery_times(curves[:, column], points)
        for column, category in enumerate(matrices.evaluated_categories(results, goal_space, split))
    }


@register_statistic("mastery")
def mastery(results: Results) -> pd.DataFrame:
    """Runs of every algorithm that master each category, and their times to mastery.

    Times are in the unit of the experiment, episodes by default.
    `restricted_mean`: mean time to mastery, where a run without mastery counts as `limit`, the last
    evaluation; interval over whole runs. `median`: when half of the runs have mastered; empty if
    never. `log_rank`, `p`, `p_holm` (corrected over the algorithms, per category): the reference
    against this algorithm; empty for the reference itself.
    """
    bootstrap, reference = matrices.bootstrap_of(results), results.reference
    rows: list[Row] = []
    for goal_space, split, algorithm in matrices.algorithms_of(results):
        limit = float(matrices.evaluation_points(results, goal_space)[-1])
        is_compared = algorithm != reference and reference in results.algorithms_in(goal_space)
        rivals = times_of(results, reference, goal_space, split) if is_compared else {}
        for category, times in times_of(results, algorithm, goal_space, split).items():
            values, mastered = times
            estimate = intervals.mean_estimate(values[:, None], bootstrap, (0.0, limit))
            row: Row = dict(zip(FAMILY, (goal_space, split, category), strict=True))
            row |= {**algorithm._asdict(), "mastered": int(mastered.sum()), "limit": limit}
            row |= matrices.interval_of(estimate, 0, (len(values), 1), bootstrap)
            row["restricted_mean"] = estimate.value[0]
            row["median"] = median_time(kaplan_meier(values, mastered))
            if category in rivals:
                row["log_rank"], row["p"] = log_rank(rivals[category], times)
            rows.append(row)
    frame = pd.DataFrame(rows, columns=list(MASTERY_COLUMNS))
    frame["p_holm"] = frame.groupby(FAMILY)["p"].transform(intervals.holm)
    return frame


# --- survival analysis; a run that never masters is censored at its last evaluation ---


MASTERED = 0.9

Flags = NDArray[np.bool_]
Times = tuple[Matrix, Flags]
"""Times of runs, and whether each is mastery (else censoring): both (runs,)."""


class Steps(NamedTuple):
    """A step function: the share from each time to the next; the first time is 0."""

    times: Matrix
    shares: Matrix


class LogRank(NamedTuple):
    """Log-rank test: chi-square with one degree of freedom, and its two-sided p value."""

    statistic: float
    p: float


def mastery_times(curves: Matrix, lengths: Matrix) -> Times:
    """Times at which runs master one category.

    Args:
        curves: success, (runs, points).
        lengths: training length at each point, in any unit, increasing: (points,), or of each run
            (runs, points).
    """
    high = np.asarray(curves) > MASTERED
    pairs = high[:, :-1] & high[:, 1:]
    mastered: Flags = np.array(pairs.any(axis=1), dtype=np.bool_)
    lengths = np.broadcast_to(np.asarray(lengths, dtype=np.float64), high.shape)
    if pairs.shape[1] == 0:
        return lengths[:, -1].copy(), mastered
    first = np.where(mastered, pairs.argmax(axis=1), -1)
    return lengths[np.arange(len(high)), first], mastered


def kaplan_meier(times: Matrix, mastered: Flags) -> Steps:
    """Kaplan-Meier estimate of the share of runs that have not mastered yet.

    At each time of mastery the share is multiplied by 1 - (runs that master then) / (runs at risk).
    """
    events = np.unique(times[mastered])
    at_risk = (times[None, :] >= events[:, None]).sum(axis=1)
    deaths = ((times[None, :] == events[:, None]) & mastered).sum(axis=1)
    shares = np.cumprod(1.0 - deaths / np.maximum(at_risk, 1))
    return Steps(np.concatenate([[0.0], events]), np.concatenate([[1.0], shares]))


def median_time(steps: Steps) -> float:
    """First time at which at least half of the runs have mastered; NaN if never."""
    reached = np.flatnonzero(steps.shares <= 0.5 + intervals.ROUNDING)
    return float(steps.times[reached[0]]) if len(reached) else np.nan


def log_rank(first: Times, second: Times) -> LogRank:
    """Test whether two groups of runs differ in time to mastery, with `scipy.stats.logrank`.

    If no run masters, or nothing can differ, the statistic is 0 and p is 1.
    """
    from scipy.stats import CensoredData, logrank

    groups = (
        CensoredData(uncensored=times[mastered], right=times[~mastered])
        for times, mastered in (first, second)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        test = logrank(*groups)
    if not np.isfinite(test.statistic):
        return LogRank(0.0, 1.0)
    return LogRank(float(test.statistic**2), float(test.pvalue))
