"""Intervals over runs: whole runs are resampled, with all their categories and points.

The unit of statistics is the run. The categories of one run rise and fall together, so a resample
that mixes categories of different runs varies too little, and its interval is too narrow.

Resamples are drawn once for each number of runs (with `arch`) and used for all columns. A mean gets
a studentised interval (bootstrap-t; Efron and Tibshirani 1993, 12.5), which covers best of those in
`analysis.statistics.simulation`; anything else gets a percentile interval.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from magellan.core.errors import InputError

Matrix = NDArray[np.float64]
Bounds = tuple[float, float]

RATE: Bounds = (0.0, 1.0)
DIFFERENCE: Bounds = (-1.0, 1.0)

STUDENTISED = "studentised bootstrap of whole runs"
PERCENTILE = "percentile bootstrap of whole runs"
STUDENT_T = "Student t over runs: too few to resample"
EQUAL = "none: all runs equal"
SINGLE = "none: a single seed"
METHODS = (STUDENTISED, PERCENTILE, STUDENT_T, EQUAL, SINGLE)

# Spread below this is rounding: of scores near 1, of the standard error of a resample.
ROUNDING = 1e-12
DEGENERATE = 1e-6


@dataclass(frozen=True)
class Bootstrap:
    """Resampling of the intervals: number of resamples, level in (0, 1), seed."""

    repetitions: int = 2_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def tail(self) -> float:
        """Chance left out on each side."""
        return (1.0 - self.confidence) / 2.0


@dataclass(frozen=True)
class Estimate:
    """A point estimate with its interval; arrays of one shape.

    Attributes:
        value: the estimate.
        low, high: bounds; NaN for a single run, both the value where all runs are equal.
        method: how each interval was made, one of `METHODS`.
    """

    value: Matrix
    low: Matrix
    high: Matrix
    method: NDArray[np.object_]


def mean_estimate(values: Matrix, bootstrap: Bootstrap, bounds: Bounds = RATE) -> Estimate:
    """Mean of each column with its studentised interval: (runs, columns) to (columns,)."""
    check_scores(values)
    value = values.mean(axis=0)
    if len(values) == 1:
        return _single(value)
    (weights,) = resample_weights((len(values),), bootstrap.repetitions, bootstrap.seed)
    means, variances = _resampled(values, weights)
    error = _standard_error(values)
    freedom = np.full(value.shape, len(values) - 1.0)
    found = _studentised(value, error, means, variances, freedom, bootstrap)
    return _clipped(found, bounds)


def difference_estimate(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Estimate:
    """Difference of the means of two independent samples, ours minus theirs, of each column.

    Args:
        ours: rates, (runs, columns).
        theirs: rates, (other runs, columns).
        bootstrap: repetitions, level and seed.

    Returns:
        An estimate of (columns,) with studentised intervals (Welch's standard error).
    """
    check_scores(ours)
    check_scores(theirs)
    value = ours.mean(axis=0) - theirs.mean(axis=0)
    if min(len(ours), len(theirs)) == 1:
        return _single(value)
    sizes = len(ours), len(theirs)
    weights = resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    (mean, variance), (other_mean, other_variance) = map(_resampled, (ours, theirs), weights)
    errors = np.stack([_standard_error(ours), _standard_error(theirs)])
    error, freedom = np.sqrt((errors**2).sum(axis=0)), welch_freedom(errors, sizes)
    shifts, variances = mean - other_mean, variance + other_variance
    found = _studentised(value, error, shifts, variances, freedom, bootstrap)
    return _clipped(found, DIFFERENCE)


def percentile_estimate(
    samples: list[Matrix], function: Callable[..., Matrix], bootstrap: Bootstrap
) -> Estimate:
    """Any statistic with its percentile interval.

    Args:
        samples: arrays (runs, ...), resampled independently of each other.
        function: maps arrays (..., runs, ...), which it gets as separate arguments, with a leading
            axis of resamples or without, to (..., numbers).
        bootstrap: repetitions, level and seed.

    Returns:
        An estimate of (numbers,).
    """
    for array in samples:
        check_scores(array)
    value = np.asarray(function(*samples), dtype=np.float64)
    if any(len(array) == 1 for array in samples):
        return _single(value)
    if all((np.ptp(array, axis=0) <= ROUNDING).all() for array in samples):
        return Estimate(value, value, value, _label(value, EQUAL))
    sizes = tuple(len(array) for array in samples)
    rows = resample_rows(sizes, bootstrap.repetitions, bootstrap.seed)
    drawn = function(*(array[row] for array, row in zip(samples, rows, strict=True)))
    low, high = np.quantile(drawn, [bootstrap.tail, 1.0 - bootstrap.tail], axis=0)
    return Estimate(value, low, high, _label(value, PERCENTILE))


# --- resamples ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def resample_rows(
    sizes: tuple[int, ...], repetitions: int, seed: int
) -> tuple[NDArray[np.intp], ...]:
    """Rows of every resample of independent samples: one (repetitions, runs) array each."""
    from arch.bootstrap import IIDBootstrap, IndependentSamplesBootstrap

    kind = IIDBootstrap if len(sizes) == 1 else IndependentSamplesBootstrap
    numbers = [np.arange(size) for size in sizes]
    draws = kind(*numbers, seed=np.random.default_rng(seed)).bootstrap(repetitions)
    return tuple(map(np.stack, zip(*(rows for rows, _ in draws), strict=True)))


@functools.lru_cache(maxsize=64)
def resample_weights(sizes: tuple[int, ...], repetitions: int, seed: int) -> tuple[Matrix, ...]:
    """Share of each run in every resample: one (repetitions, runs) array for each sample."""
    rows = resample_rows(sizes, repetitions, seed)
    return tuple(
        (drawn[:, :, None] == np.arange(size)).mean(axis=1)
        for drawn, size in zip(rows, sizes, strict=True)
    )


def _resampled(values: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Shift of the mean, and squared standard error, of each resample: both (resamples, columns).

    Shifts and variances that are only rounding come out as exactly 0.
    """
    centred = values - values.mean(axis=0)
    shifts = weights @ centred
    variances = (weights @ centred**2 - shifts**2) / (len(values) - 1)
    limit = DEGENERATE * _standard_error(values)
    return (
        np.where(np.abs(shifts) > limit, shifts, 0.0),
        np.where(variances > limit**2, variances, 0.0),
    )


def _standard_error(values: Matrix) -> Matrix:
    """Standard error of the mean of each column; exactly 0 where all runs are equal."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.where(np.ptp(values, axis=0) > ROUNDING, error, 0.0)


def welch_freedom(errors: Matrix, sizes: tuple[int, int]) -> Matrix:
    """Degrees of freedom of a difference, from both standard errors (2, columns): (columns,)."""
    parts = errors**4 / (np.array(sizes)[:, None] - 1.0)
    with np.errstate(invalid="ignore"):
        return (errors**2).sum(axis=0) ** 2 / parts.sum(axis=0)


# --- intervals ----------------------------------------------------------------------------------


def _studentised(
    value: Matrix,
    error: Matrix,
    shifts: Matrix,
    variances: Matrix,
    freedom: Matrix,
    bootstrap: Bootstrap,
) -> Estimate:
    """Bootstrap-t: quantiles of shift / standard error over the resamples.

    A resample without spread counts as infinite. Where these reach into a tail (three runs or
    fewer) the quantiles of Student's t stand in.
    """
    from scipy.stats import t as student

    low, high = t_quantiles(shifts, variances, bootstrap.tail)
    usable = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        normal = student.ppf(1.0 - bootstrap.tail, freedom)
    low, high = np.where(usable, low, -normal), np.where(usable, high, normal)
    method = np.where(usable, STUDENTISED, STUDENT_T).astype(object)
    equal = error == 0.0
    method[equal] = EQUAL
    steps = (np.where(equal, 0.0, quantile) * error for quantile in (high, low))
    down, up = steps
    return Estimate(value, value - down, value - up, method)


def t_quantiles(shifts: Matrix, variances: Matrix, tail: float) -> tuple[Matrix, Matrix]:
    """Lower and upper quantile of shift / error, both (resamples, columns): two of (columns,)."""
    errors = np.sqrt(variances)
    infinite = np.where(shifts == 0.0, 0.0, np.copysign(np.inf, shifts))
    ratios = np.where(errors > 0.0, shifts / np.where(errors > 0.0, errors, 1.0), infinite)
    ratios.sort(axis=0)
    place = int(tail * len(ratios) + ROUNDING)
    return ratios[place], ratios[-1 - place]


def _clipped(found: Estimate, bounds: Bounds) -> Estimate:
    low, high = (np.clip(bound, *bounds) for bound in (found.low, found.high))
    return Estimate(found.value, low, high, found.method)


def _single(value: Matrix) -> Estimate:
    nothing = np.full_like(value, np.nan)
    return Estimate(value, nothing, nothing, _label(value, SINGLE))


def _label(value: Matrix, text: str) -> NDArray[np.object_]:
    return np.full(value.shape, text, dtype=object)


def check_scores(scores: Matrix) -> None:
    """InputError unless an array is (runs, ...) with one run at least and without holes."""
    if scores.ndim < 2 or 0 in scores.shape:
        raise InputError(
            f"scores: shape {scores.shape} is not (runs, columns) with at least one each"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores: a matrix of scores holds NaN or infinity")


# --- permutation tests of run means, and the correction for several of them ---


# Up to so many ways to hand out the runs all of them are tried; else so many are drawn.
MOST_EXACT = 200_000
DRAWN = 99_999
TIE = 1e-9


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
    infinite = np.where(np.abs(shifts) > TIE, np.copysign(np.inf, shifts), 0.0)
    return np.where(errors > TIE, shifts / np.maximum(errors, TIE), infinite)


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
    as_far = int((np.abs(under_chance) >= abs(observed) - TIE).sum())
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
