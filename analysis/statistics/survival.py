"""Time to mastery: how much training until a run can do a category, if it ever can.

A run masters a category at the first evaluation from which success is above 0.9 at two evaluations
in a row: the time is that of the first of the two. A run without such a pair is censored at
the last evaluation: it took longer than the budget, nobody knows how much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.intervals import Matrix
from magellan.core.errors import InputError

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
    """Whether two groups of runs master at other times.

    At each time of mastery: how many of ours would master then if both groups were the same? The
    sum of observed minus expected is compared with its (hypergeometric) variance. Without any
    mastery, or if nothing could differ, the statistic is 0 and p is 1.
    """
    from scipy.stats import chi2

    if not len(ours[0]) or not len(theirs[0]):
        raise InputError("log-rank test: a group without runs")
    surplus, variance = 0.0, 0.0
    for event in np.unique(np.concatenate([times[mastered] for times, mastered in (ours, theirs)])):
        (mine, my_deaths), (other, other_deaths) = (
            _counts(group, event) for group in (ours, theirs)
        )
        total, deaths = mine + other, my_deaths + other_deaths
        surplus += my_deaths - deaths * mine / total
        if total > 1:
            chance = mine * other / total**2
            variance += deaths * chance * (total - deaths) / (total - 1)
    if variance <= 0.0:
        return LogRank(0.0, 1.0)
    statistic = surplus**2 / variance
    return LogRank(float(statistic), float(chi2.sf(statistic, 1)))


def _counts(group: Times, event: float) -> tuple[int, int]:
    """Runs still watched at a time, and those that master then."""
    times, mastered = group
    return int((times >= event).sum()), int(((times == event) & mastered).sum())
