"""Time to mastery of every category, and whether the reference's differs from the others'."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.statistics import intervals
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.statistics.matrices import (
    Row,
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    evaluation_points,
    provenance,
    success_curves,
)
from analysis.statistics.registry import register_statistic
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results
from magellan.core.errors import InputError

MASTERY_COLUMNS = (
    *("goal_space", "split", "category", "sampler", "variant", "runs", "mastered"),
    *("restricted_mean", "low", "high", "median", "limit", "log_rank", "p", "p_holm"),
    *("method", "repetitions", "confidence"),
)
FAMILY = ["goal_space", "split", "category"]


def times_of(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Times]:
    """Category -> times to mastery of an algorithm's runs, and which are not censored."""
    curves = success_curves(results, algorithm, goal_space, split)
    points = evaluation_points(results, goal_space)
    return {
        category: mastery_times(curves[:, at], points)
        for at, category in enumerate(evaluated_categories(results, goal_space, split))
    }


@register_statistic("mastery")
def mastery(results: Results) -> pd.DataFrame:
    """Runs that master each category, and how long it takes, of every algorithm.

    Times are in the unit of the experiment, episodes by default.
    `restricted_mean`: mean time to mastery, where a run without it counts as `limit`, the last
    evaluation; its interval is over whole runs. `median`: when half of the runs have mastered;
    empty if never. `log_rank`, `p`, `p_holm` (corrected over the others of a category): the
    reference against this algorithm; empty for the reference itself.
    """
    bootstrap = bootstrap_of(results)
    rows: list[Row] = []
    for goal_space, split, algorithm in algorithms_of(results):
        limit = float(evaluation_points(results, goal_space)[-1])
        reference = _reference_times(results, algorithm, goal_space, split)
        for category, times in times_of(results, algorithm, goal_space, split).items():
            rows.append(
                {
                    "goal_space": goal_space,
                    "split": split,
                    "category": category,
                    **algorithm._asdict(),
                    **_described(times, limit, bootstrap),
                    **_tested(reference.get(category), times),
                }
            )
    frame = pd.DataFrame(rows, columns=list(MASTERY_COLUMNS))
    frame["p_holm"] = frame.groupby(FAMILY)["p"].transform(lambda p: intervals.holm(p.to_numpy()))
    return frame


def _reference_times(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Times]:
    """Those of the reference; none for the reference itself, or where it has no run."""
    reference = results.reference
    if algorithm == reference or reference not in results.algorithms_in(goal_space):
        return {}
    return times_of(results, reference, goal_space, split)


def _described(times: Times, limit: float, bootstrap: Bootstrap) -> Row:
    values, mastered = times
    found = intervals.mean_estimate(values[:, None], bootstrap, (0.0, limit))
    steps = kaplan_meier(values, mastered)
    made = provenance(bootstrap, (len(values), 1), found.method[0])
    return {
        **{key: value for key, value in made.items() if key != "tasks"},
        "mastered": int(mastered.sum()),
        "restricted_mean": restricted_mean(steps, limit),
        "low": found.low[0],
        "high": found.high[0],
        "median": median_time(steps),
        "limit": limit,
    }


def _tested(reference: Times | None, times: Times) -> Row:
    if reference is None:
        return {"log_rank": np.nan, "p": np.nan}
    found = log_rank(reference, times)
    return {"log_rank": found.statistic, "p": found.p}


# --- time to mastery of runs; one that never masters is censored at its last evaluation ---


MASTERED = 0.9
IN_A_ROW = 2

Flags = NDArray[np.bool_]
Times = tuple[Matrix, Flags]
"""Times of runs, and whether each ended in mastery (else censored there): both (runs,)."""


class Steps(NamedTuple):
    """A curve of steps: from each time on, up to the next, the share; the first time is 0."""

    times: Matrix
    shares: Matrix


class LogRank(NamedTuple):
    """Log-rank test: chi-square with one degree of freedom, and its two-sided p value."""

    statistic: float
    p: float


def mastery_times(curves: Matrix, lengths: Matrix) -> Times:
    """When runs master one category.

    Args:
        curves: success, (runs, points).
        lengths: of training at each point, in the unit of the experiment, increasing, (points,).
    """
    high = np.asarray(curves) > MASTERED
    pairs = high[:, :-1] & high[:, 1:]
    mastered: Flags = np.array(pairs.any(axis=1), dtype=np.bool_)
    lengths = np.asarray(lengths, dtype=np.float64)
    if pairs.shape[1] == 0:
        return np.full(len(high), lengths[-1]), mastered
    return np.where(mastered, lengths[pairs.argmax(axis=1)], lengths[-1]), mastered


def kaplan_meier(times: Matrix, mastered: Flags) -> Steps:
    """Share of runs that have not mastered yet, estimated with the censored ones.

    At each time of mastery the share is multiplied by 1 - (runs that master then) / (runs that had
    not until then and were still watched).
    """
    events = np.unique(times[mastered])
    at_risk = (times[None, :] >= events[:, None]).sum(axis=1)
    deaths = ((times[None, :] == events[:, None]) & mastered).sum(axis=1)
    shares = np.cumprod(1.0 - deaths / np.maximum(at_risk, 1))
    return Steps(np.concatenate([[0.0], events]), np.concatenate([[1.0], shares]))


def restricted_mean(steps: Steps, limit: float) -> float:
    """Mean time to mastery, where longer than `limit` counts as `limit`: area under the steps."""
    edges = np.append(np.minimum(steps.times, limit), limit)
    return float((np.diff(edges) * steps.shares).sum())


def median_time(steps: Steps) -> float:
    """First time at which half of the runs have mastered or more; NaN if that never comes."""
    reached = np.flatnonzero(steps.shares <= 0.5)
    return float(steps.times[reached[0]]) if len(reached) else np.nan


def log_rank(ours: Times, theirs: Times) -> LogRank:
    """Whether two groups of runs master at other times, by `scipy.stats.logrank`.

    Without any mastery, or if nothing could differ, the statistic is 0 and p is 1.
    """
    from scipy.stats import CensoredData, logrank

    if not len(ours[0]) or not len(theirs[0]):
        raise InputError("log-rank test: a group without runs")
    groups = (
        CensoredData(uncensored=times[mastered], right=times[~mastered])
        for times, mastered in (ours, theirs)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        found = logrank(*groups)
    if not np.isfinite(found.statistic):
        return LogRank(0.0, 1.0)
    return LogRank(float(found.statistic**2), float(found.pvalue))
