"""Bootstrap intervals over runs, and permutation tests.

Whole runs are resampled, with all their categories and points: the categories of one run are
correlated, so resampling them separately would make intervals too narrow.

Resamples are drawn once for each number of runs (with `arch`) and used for all columns. Means get a
studentised interval (bootstrap-t; Efron and Tibshirani 1993, 12.5), which has the best coverage in
`analysis.statistics.simulation`; other statistics get a percentile interval.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
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
STUDENT_T = "Student t over runs: many resamples have no spread"
EQUAL = "none: all runs equal"
SINGLE = "none: a single seed"
METHODS = (STUDENTISED, PERCENTILE, STUDENT_T, EQUAL, SINGLE)

# Spread below these is rounding error: of scores near 1; of the standard error of a resample.
ROUNDING = 1e-12
DEGENERATE = 1e-6


@dataclass(frozen=True)
class Bootstrap:
    """Resampling settings: number of resamples, confidence in (0, 1), seed."""

    repetitions: int = 2_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def tail(self) -> float:
        """Probability outside the interval on each side."""
        return (1.0 - self.confidence) / 2.0


@dataclass(frozen=True)
class Estimate:
    """A point estimate with its interval; arrays of one shape.

    Attributes:
        value: the estimate.
        low, high: bounds; NaN for a single run, the value itself if all runs are equal.
        method: method of each interval, one of `METHODS`.
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
    means, variances = _resample(values, weights)
    error = _standard_error(values)
    freedom = np.full(value.shape, len(values) - 1.0)
    return _studentised(value, error, means, variances, freedom, bootstrap, bounds)


def difference_estimate(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Estimate:
    """Difference of the means of two independent samples, first minus second, of each column.

    Args:
        first: rates, (runs, columns).
        second: rates, (other runs, columns).
        bootstrap: repetitions, confidence and seed.

    Returns:
        An estimate of (columns,) with studentised intervals (Welch's standard error).
    """
    check_scores(first)
    check_scores(second)
    value = first.mean(axis=0) - second.mean(axis=0)
    if min(len(first), len(second)) == 1:
        return _single(value)
    sizes = len(first), len(second)
    weights = resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    (shift_1, variance_1), (shift_2, variance_2) = map(_resample, (first, second), weights)
    errors = np.stack([_standard_error(first), _standard_error(second)])
    error, freedom = np.sqrt((errors**2).sum(axis=0)), welch_freedom(errors, sizes)
    shifts, variances = shift_1 - shift_2, variance_1 + variance_2
    return _studentised(value, error, shifts, variances, freedom, bootstrap, DIFFERENCE)


def percentile_estimate(
    samples: list[Matrix], function: Callable[..., Matrix], bootstrap: Bootstrap
) -> Estimate:
    """Any statistic with its percentile interval.

    Args:
        samples: arrays (runs, ...), resampled independently.
        function: maps the arrays, as separate arguments (..., runs, ...) with or without a leading
            axis of resamples, to (..., numbers).
        bootstrap: repetitions, confidence and seed.

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
    """Row indices of every resample, one (repetitions, runs) array per sample."""
    from arch.bootstrap import IIDBootstrap, IndependentSamplesBootstrap

    kind = IIDBootstrap if len(sizes) == 1 else IndependentSamplesBootstrap
    numbers = [np.arange(size) for size in sizes]
    draws = kind(*numbers, seed=np.random.default_rng(seed)).bootstrap(repetitions)
    return tuple(map(np.stack, zip(*(rows for rows, _ in draws), strict=True)))


@functools.lru_cache(maxsize=64)
def resample_weights(sizes: tuple[int, ...], repetitions: int, seed: int) -> tuple[Matrix, ...]:
    """Share of each run in every resample, one (repetitions, runs) array per sample."""
    rows = resample_rows(sizes, repetitions, seed)
    return tuple(
        (drawn[:, :, None] == np.arange(size)).mean(axis=1)
        for drawn, size in zip(rows, sizes, strict=True)
    )


def _resample(values: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Shift of the mean and squared standard error of each resample, both (resamples, columns).

    Shifts and variances that are rounding error become exactly 0.
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
    """Standard error of the mean of each column; exactly 0 if all runs are equal."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.where(np.ptp(values, axis=0) > ROUNDING, error, 0.0)


def welch_freedom(errors: Matrix, sizes: tuple[int, int]) -> Matrix:
    """Welch's degrees of freedom from both standard errors (2, columns): (columns,)."""
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
    bounds: Bounds,
) -> Estimate:
    """Bootstrap-t: quantiles of shift / standard error over the resamples; clipped to `bounds`.

    A resample without spread counts as infinite. If these reach into a tail (three runs or fewer),
    Student's t quantiles are used instead.
    """
    from scipy.stats import t as student

    low, high = t_quantiles(shifts, variances, bootstrap.tail)
    usable = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        quantile = student.ppf(1.0 - bootstrap.tail, freedom)
    low, high = np.where(usable, low, -quantile), np.where(usable, high, quantile)
    method = np.where(usable, STUDENTISED, STUDENT_T).astype(object)
    equal = error == 0.0
    method[equal] = EQUAL
    low, high = (value - np.where(equal, 0.0, ratio) * error for ratio in (high, low))
    return Estimate(value, np.clip(low, *bounds), np.clip(high, *bounds), method)


def t_quantiles(shifts: Matrix, variances: Matrix, tail: float) -> tuple[Matrix, Matrix]:
    """Lower and upper quantiles of shift / error: (resamples, columns) to two (columns,)."""
    errors = np.sqrt(variances)
    infinite = np.where(shifts == 0.0, 0.0, np.copysign(np.inf, shifts))
    ratios = np.where(errors > 0.0, shifts / np.where(errors > 0.0, errors, 1.0), infinite)
    ratios.sort(axis=0)
    index = int(tail * len(ratios) + ROUNDING)
    return ratios[index], ratios[-1 - index]


def _single(value: Matrix) -> Estimate:
    nan = np.full_like(value, np.nan)
    return Estimate(value, nan, nan, _label(value, SINGLE))


def _label(value: Matrix, text: str) -> NDArray[np.object_]:
    return np.full(value.shape, text, dtype=object)


def check_scores(scores: Matrix) -> None:
    """Raise InputError unless an array is (runs, columns, ...), not empty and finite."""
    if scores.ndim < 2 or 0 in scores.shape:
        raise InputError(
            f"scores: shape {scores.shape} is not (runs, columns) with at least one each"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores: a matrix of scores holds NaN or infinity")


# --- permutation tests of run means, and Holm's correction ---


# Up to MOST_EXACT permutations all are enumerated; else DRAWN are sampled.
MOST_EXACT = 200_000
DRAWN = 99_999
TIE = 1e-9


class PValue(NamedTuple):
    """A two-sided p value, and how it was computed."""

    p: float
    method: str


def permutation_test(first: Matrix, second: Matrix, seed: int = 0) -> PValue:
    """Test whether the means of two independent samples differ: (runs,) and (other runs,).

    The statistic is Welch's t, so that the test is asymptotically valid for unequal variances and
    sizes (Janssen 1997). With equal sizes, or a sample of one run, it is the plain difference,
    which gives the same p: t increases with it, as the pooled sum of squares is constant.
    """
    pooled = np.concatenate([first, second])
    groups, exact = _groups(len(first), len(pooled), seed)
    is_plain = len(first) == len(second) or min(len(first), len(second)) == 1
    statistic = _difference if is_plain else _welch_t
    observed = statistic(pooled, np.arange(len(first))[None])[0]
    return _two_sided(statistic(pooled, groups), float(observed), exact, "splits of the runs")


def _difference(pooled: Matrix, groups: NDArray[np.intp]) -> Matrix:
    """Mean of the runs in each group (permutations, first) minus the rest: (permutations,)."""
    count = groups.shape[1]
    sums = pooled[groups].sum(axis=1)
    return sums / count - (pooled.sum() - sums) / (len(pooled) - count)


def _welch_t(pooled: Matrix, groups: NDArray[np.intp]) -> Matrix:
    """The same divided by its standard error; infinite if neither side has spread."""
    pooled = pooled - pooled.mean()
    first, squares = pooled[groups].sum(axis=1), (pooled**2)[groups].sum(axis=1)
    n_first, n_second = groups.shape[1], len(pooled) - groups.shape[1]
    variances = (squares / n_first - (first / n_first) ** 2) / (n_first - 1)
    squares, second = (pooled**2).sum() - squares, pooled.sum() - first
    variances += (squares / n_second - (second / n_second) ** 2) / (n_second - 1)
    errors = np.sqrt(np.maximum(variances, 0.0))
    shifts = first / n_first - second / n_second
    infinite = np.where(np.abs(shifts) > TIE, np.copysign(np.inf, shifts), 0.0)
    return np.where(errors > TIE, shifts / np.maximum(errors, TIE), infinite)


def sign_flip_test(differences: Matrix, seed: int = 0) -> PValue:
    """Test whether the mean of paired differences (pairs,) differs from 0.

    Studentising would not change p: the sum of squares is constant, so t increases with the mean.
    """
    signs, exact = _signs(len(differences), seed)
    means = signs @ differences / len(differences)
    return _two_sided(means, float(differences.mean()), exact, "signs of the pairs")


def _two_sided(permuted: Matrix, observed: float, exact: bool, kind: str) -> PValue:
    """Share at least as extreme as `observed`; with sampling, the observed one counts too (+1)."""
    extreme = int((np.abs(permuted) >= abs(observed) * (1 - TIE) - TIE).sum())
    count = len(permuted)
    if exact:
        return PValue(extreme / count, f"exact: all {count:,} {kind}")
    return PValue((extreme + 1) / (count + 1), f"Monte Carlo: {count:,} drawn {kind}")


@functools.lru_cache(maxsize=8)
def _groups(first: int, total: int, seed: int) -> tuple[NDArray[np.intp], bool]:
    """Runs in the first sample, (permutations, first), and whether all are enumerated."""
    if math.comb(total, first) <= MOST_EXACT:
        combinations = itertools.combinations(range(total), first)
        return np.array(list(combinations), dtype=np.intp), True
    rows = np.tile(np.arange(total), (DRAWN, 1))
    return np.random.default_rng(seed).permuted(rows, axis=1)[:, :first], False


@functools.lru_cache(maxsize=8)
def _signs(pairs: int, seed: int) -> tuple[Matrix, bool]:
    """Signs of paired differences, (permutations, pairs), and whether all are enumerated."""
    if 2**pairs <= MOST_EXACT:
        return np.array(list(itertools.product((1.0, -1.0), repeat=pairs))), True
    return np.random.default_rng(seed).choice((1.0, -1.0), (DRAWN, pairs)), False


def holm(p_values: Matrix) -> Matrix:
    """Holm's step-down correction of p values (tests,) for the family-wise error rate.

    The smallest is multiplied by the number of tests, the next by one less, and so on; kept
    monotone and at most 1. NaN is no test.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    corrected = np.full_like(p_values, np.nan)
    order = [index for index in np.argsort(p_values) if not np.isnan(p_values[index])]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return corrected


def holm_within(p_values: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Holm's correction of p values (tests,) within each family (tests,)."""
    corrected = np.full(len(p_values), np.nan)
    for family in set(families):
        rows = [row for row, name in enumerate(families) if name == family]
        corrected[rows] = holm(np.array([p_values[row] for row in rows]))
    return corrected.tolist()
