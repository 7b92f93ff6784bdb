"""Permutation tests of run means, and the correction for several of them.

A permutation test asks: if the samplers were the same, how often would chance alone, by handing the
runs out to the samplers differently, give a difference at least this large? It needs no assumption
about the spread of the runs.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.intervals import Matrix

# Up to so many ways to hand out the runs all of them are tried; else so many are drawn.
MOST_EXACT = 200_000
DRAWN = 99_999
ROUNDING = 1e-9


class PValue(NamedTuple):
    """A two-sided p value, and how it was found."""

    p: float
    method: str


def permutation_test(ours: Matrix, theirs: Matrix, seed: int = 0) -> PValue:
    """Whether the means of two independent samples differ: (runs,) against (other runs,).

    Each difference is divided by its standard error (Welch's t). Then the test keeps its level, for
    many runs, also where the samples differ in spread and in number (Janssen 1997). With equal
    numbers the p value is that of the differences themselves: t grows with the difference, as the
    sum of squares of all runs does not change. A sample of one run has no spread, and there the
    difference itself is taken.
    """
    pooled = np.concatenate([ours, theirs])
    groups, exact = _groups(len(ours), len(pooled), seed)
    statistic = _welch_t if min(len(ours), len(theirs)) > 1 else _difference
    observed = statistic(pooled, np.arange(len(ours))[None])[0]
    return _two_sided(statistic(pooled, groups), float(observed), exact, "splits of the runs")


def _difference(pooled: Matrix, groups: NDArray[np.intp]) -> Matrix:
    """Mean of the runs in each group (ways, first) minus that of the others: (ways,)."""
    count = groups.shape[1]
    sums = pooled[groups].sum(axis=1)
    return sums / count - (pooled.sum() - sums) / (len(pooled) - count)


def _welch_t(pooled: Matrix, groups: NDArray[np.intp]) -> Matrix:
    """The same divided by its standard error; infinite where neither side has any spread."""
    pooled = pooled - pooled.mean()
    first, squares = pooled[groups].sum(axis=1), (pooled**2)[groups].sum(axis=1)
    count, others = groups.shape[1], len(pooled) - groups.shape[1]
    variances = (squares / count - (first / count) ** 2) / (count - 1)
    squares, second = (pooled**2).sum() - squares, pooled.sum() - first
    variances += (squares / others - (second / others) ** 2) / (others - 1)
    errors = np.sqrt(np.maximum(variances, 0.0))
    shifts = first / count - second / others
    infinite = np.where(np.abs(shifts) > ROUNDING, np.copysign(np.inf, shifts), 0.0)
    return np.where(errors > ROUNDING, shifts / np.maximum(errors, ROUNDING), infinite)


def sign_flip_test(differences: Matrix, seed: int = 0) -> PValue:
    """Whether the mean of paired differences (pairs,) is other than 0.

    Studentised it would be the same test: the sum of squares does not change with the signs, so t
    grows with the mean.
    """
    signs, exact = _signs(len(differences), seed)
    means = signs @ differences / len(differences)
    return _two_sided(means, float(differences.mean()), exact, "signs of the pairs")


def _two_sided(under_chance: Matrix, observed: float, exact: bool, kind: str) -> PValue:
    """Share that is at least as far from 0; drawn ones count the observed one in (+1)."""
    as_far = int((np.abs(under_chance) >= abs(observed) - ROUNDING).sum())
    count = len(under_chance)
    if exact:
        return PValue(as_far / count, f"exact: all {count:,} {kind}")
    return PValue((as_far + 1) / (count + 1), f"Monte Carlo: {count:,} drawn {kind}")


@functools.lru_cache(maxsize=8)
def _groups(first: int, total: int, seed: int) -> tuple[NDArray[np.intp], bool]:
    """Which runs the first sample may have, (ways, first), and whether these are all."""
    if math.comb(total, first) <= MOST_EXACT:
        ways = itertools.combinations(range(total), first)
        return np.array(list(ways), dtype=np.intp), True
    rows = np.tile(np.arange(total), (DRAWN, 1))
    return np.random.default_rng(seed).permuted(rows, axis=1)[:, :first], False


@functools.lru_cache(maxsize=8)
def _signs(pairs: int, seed: int) -> tuple[Matrix, bool]:
    """Signs that paired differences may have, (ways, pairs), and whether these are all."""
    if 2**pairs <= MOST_EXACT:
        return np.array(list(itertools.product((1.0, -1.0), repeat=pairs))), True
    return np.random.default_rng(seed).choice((1.0, -1.0), (DRAWN, pairs)), False


def holm(p_values: Matrix) -> Matrix:
    """Holm's correction of p values (tests,): chance of one false alarm or more among them all.

    The smallest is multiplied by the number of tests, the next by one less, and so on; none may be
    smaller than the one before, none above 1. NaN is no test.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    corrected = np.full_like(p_values, np.nan)
    order = [at for at in np.argsort(p_values) if not np.isnan(p_values[at])]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return corrected
