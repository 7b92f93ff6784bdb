"""Intervals over runs, and permutation tests with the intervals that invert them.

Whole runs are resampled or permuted, with all their categories and points: the categories of one
run are correlated, so resampling them separately would make intervals too narrow.

A difference has a permutation test and the interval of all shifts that the test does not reject.
Other numbers have no test: means get a studentised bootstrap interval (bootstrap-t; Efron and
Tibshirani 1993, 12.5), other statistics a percentile one. Resamples are drawn once for each number
of runs and used for all columns.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from magellan.core.errors import InputError

Matrix = NDArray[np.float64]
Bounds = tuple[float, float]

RATE: Bounds = (0.0, 1.0)

STUDENTISED = "studentised bootstrap of whole runs"
PERCENTILE = "percentile bootstrap of whole runs"
STUDENT_T = "Student t over runs: many resamples have no spread"
EQUAL = "none: all runs equal"
SINGLE = "none: a single seed"
INVERTED = "inverted permutation test"
TOO_FEW = "none: too few runs"
METHODS = (STUDENTISED, PERCENTILE, STUDENT_T, EQUAL, SINGLE, INVERTED, TOO_FEW)

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
    """Mean of each column with its studentised interval: (runs, columns) to (columns,).

    Bootstrap-t: quantiles of shift / standard error over the resamples; clipped to `bounds`. A
    resample without spread counts as infinite. If these reach into a tail (three runs or fewer),
    Student's t quantiles are used instead.
    """
    from scipy.stats import t as student

    check_scores(values)
    value = values.mean(axis=0)
    if len(values) == 1:
        return _estimate(value, np.nan, np.nan, SINGLE)
    equal = np.ptp(values, axis=0) <= ROUNDING
    error = np.where(equal, 0.0, values.std(axis=0, ddof=1) / np.sqrt(len(values)))
    shifts, errors = _resample(values - value, error, bootstrap)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(shifts == 0.0, 0.0, shifts / errors)
    ratios.sort(axis=0)
    index = int(bootstrap.tail * len(ratios) + ROUNDING)
    low, high = ratios[index], ratios[-1 - index]
    usable = np.isfinite(low) & np.isfinite(high)
    quantile = student.ppf(1.0 - bootstrap.tail, len(values) - 1)
    low, high = np.where(usable, low, -quantile), np.where(usable, high, quantile)
    method = np.where(usable, STUDENTISED, STUDENT_T).astype(object)
    method[equal] = EQUAL
    low, high = (value - np.where(equal, 0.0, ratio) * error for ratio in (high, low))
    return Estimate(value, np.clip(low, *bounds), np.clip(high, *bounds), method)


def mean_interval(values: Matrix, bootstrap: Bootstrap, bounds: Bounds = RATE) -> Interval:
    """`mean_estimate` of one number of each run: (runs,)."""
    estimate = mean_estimate(values[:, None], bootstrap, bounds)
    return Interval(*(float(number[0]) for number in (estimate.value, estimate.low, estimate.high)))


def percentile_estimate(
    samples: list[Matrix], function: Callable[..., Matrix], bootstrap: Bootstrap
) -> Estimate:
    """Any statistic with its percentile interval.

    Args:
        samples: arrays (runs, ...), resampled independently.
        function: maps the arrays, as separate arguments (..., runs, ...) with or without a leading
            axis of resamples, to (..., numbers).
        bootstrap: repetitions, confidence and seed.

    Returns: an estimate of (numbers,).
    """
    for array in samples:
        check_scores(array)
    value = np.asarray(function(*samples), dtype=np.float64)
    if any(len(array) == 1 for array in samples):
        return _estimate(value, np.nan, np.nan, SINGLE)
    if all((np.ptp(array, axis=0) <= ROUNDING).all() for array in samples):
        return _estimate(value, value, value, EQUAL)
    sizes = tuple(len(array) for array in samples)
    rows = resample_rows(sizes, bootstrap.repetitions, bootstrap.seed)
    drawn = function(*(array[row] for array, row in zip(samples, rows, strict=True)))
    low, high = np.quantile(drawn, [bootstrap.tail, 1.0 - bootstrap.tail], axis=0)
    return _estimate(value, low, high, PERCENTILE)


# --- resamples ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def resample_rows(
    sizes: tuple[int, ...], repetitions: int, seed: int
) -> tuple[NDArray[np.intp], ...]:
    """Row indices of every resample, one (repetitions, runs) array per sample."""
    rng = np.random.default_rng(seed)
    draws = [[rng.integers(size, size=size) for size in sizes] for _ in range(repetitions)]
    return tuple(map(np.stack, zip(*draws, strict=True)))


@functools.lru_cache(maxsize=64)
def resample_weights(size: int, repetitions: int, seed: int) -> Matrix:
    """Share of each run in every resample: (repetitions, runs)."""
    (rows,) = resample_rows((size,), repetitions, seed)
    return (rows[:, :, None] == np.arange(size)).mean(axis=1)


def _resample(centred: Matrix, error: Matrix, bootstrap: Bootstrap) -> tuple[Matrix, Matrix]:
    """Shift of the mean and its standard error in each resample, both (resamples, columns).

    What is rounding error beside `error`, that of all runs, becomes exactly 0.
    """
    weights = resample_weights(len(centred), bootstrap.repetitions, bootstrap.seed)
    shifts = weights @ centred
    variances = (weights @ centred**2 - shifts**2) / (len(centred) - 1)
    limit = DEGENERATE * error
    errors = np.sqrt(np.where(variances > limit**2, variances, 0.0))
    return np.where(np.abs(shifts) > limit, shifts, 0.0), errors


def _estimate(value: Matrix, low: Any, high: Any, method: str) -> Estimate:
    """An estimate with one method, and bounds of the same shape or one number."""
    low, high = (np.broadcast_to(bound, value.shape) for bound in (low, high))
    return Estimate(value, low, high, np.full(value.shape, method, dtype=object))


def check_scores(scores: Matrix) -> None:
    """Raise InputError unless an array is (runs, columns, ...), not empty and finite."""
    if scores.ndim < 2 or 0 in scores.shape:
        raise InputError(
            f"scores: shape {scores.shape} is not (runs, columns) with at least one each"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores: a matrix of scores holds NaN or infinity")


# --- permutation tests of differences, their intervals, and Holm's correction ---


# Up to MOST_EXACT permutations all are enumerated; else DRAWN are sampled.
MOST_EXACT = 200_000
DRAWN = 99_999
TIE = 1e-9
CONFIDENCE = 0.95
SPLITS, SIGNS = "splits of the runs", "signs of the pairs"


class Interval(NamedTuple):
    """A number and its interval; NaN where so few runs have none."""

    value: float
    low: float
    high: float


class Tested(NamedTuple):
    """A difference, its permutation test, and the interval that inverts the test.

    Attributes:
        low, high: the shifts whose two-sided p is 1 - confidence or more, so that 0 is outside
            exactly if `p` is smaller; NaN where no p of so few runs is that small.
        p: two-sided p of a difference of 0, uncorrected.
        method: how p was computed.
    """

    value: float
    low: float
    high: float
    p: float
    method: str

    @property
    def interval(self) -> Interval:
        """The difference and its interval."""
        return Interval(*self[:3])


def permutation_test(
    first: Matrix, second: Matrix, confidence: float = CONFIDENCE, seed: int = 0
) -> Tested:
    """Test the difference of the means of two independent samples: (runs,) and (other runs,).

    The statistic is Welch's t, so that the test is asymptotically valid for unequal variances and
    sizes (Janssen 1997). With equal sizes, or a sample of one run, it is the plain difference,
    which gives the same p: t increases with it, as the pooled sum of squares is constant.
    """
    groups, exact = _groups(len(first), len(first) + len(second), seed)
    if len(first) != len(second) and min(len(first), len(second)) > 1:
        return _welch_test(first, second, groups, exact, confidence)
    is_first = np.repeat([1.0, 0.0], [len(first), len(second)])
    pooled = np.concatenate([first, second])
    permuted, slopes = (_difference(values, groups) for values in (pooled, is_first))
    value = float(first.mean() - second.mean())
    return _tested(value, permuted, slopes, exact, SPLITS, confidence)


def _difference(pooled: Matrix, groups: Matrix) -> Matrix:
    """Mean of the runs in each group (permutations, runs) minus the rest: (permutations,)."""
    sums, count = groups @ pooled, groups[0].sum()
    return sums / count - (pooled.sum() - sums) / (len(pooled) - count)


def _welch_test(
    first: Matrix, second: Matrix, groups: Matrix, exact: bool, confidence: float
) -> Tested:
    """Test by Welch's t, and invert the test by bisection.

    A permuted t depends on the shift in a way that lets p rise again further out, so an end is
    where p first crosses 1 - confidence, on the side of 0 that the test says.
    """
    value, level = float(first.mean() - second.mean()), 1.0 - confidence - TIE
    t_at = _welch_t(first - first.mean(), second - second.mean(), groups)

    def p_at(difference: float) -> float:
        permuted = t_at(difference)
        return _p_value(permuted[:-1], permuted[-1], exact)

    def end(away: float) -> float:
        """The shift where a difference of `away` times 1, 2, 4, ... is too large."""
        inside, outside, p = 0.0, away, p_at(value)
        if value * away > 0.0:
            inside, outside = (0.0, value) if p < level else (value, value + away)
        for _ in range(8):
            if p_at(outside) < level:
                break
            inside, outside = outside, 2.0 * outside
        else:
            return math.nan
        for _ in range(30):
            middle = (inside + outside) / 2.0
            inside, outside = (inside, middle) if p_at(middle) < level else (middle, outside)
        return value - inside

    away = float(np.sqrt(first.var() + second.var())) + 10 * TIE
    how = _how(len(groups), exact, SPLITS)
    return Tested(value, end(away), end(-away), p_at(value), how)


def _welch_t(first: Matrix, second: Matrix, groups: Matrix) -> Callable[[float], Matrix]:
    """Welch's t of each group and, last, of the observed one, if `first` is larger by a difference.

    first, second: residuals of both samples, (runs,) and (other runs,).
    """
    is_first = np.repeat([1.0, 0.0], [len(first), len(second)])
    groups = np.vstack([groups, is_first])
    pooled, n_first, n_second = np.concatenate([first, second]), len(first), len(second)
    sums, squares, moved, crossed = (
        groups @ values for values in (pooled, pooled**2, is_first, is_first * pooled)
    )

    def at(difference: float) -> Matrix:
        total = n_first * difference
        inner = sums + moved * difference
        inner_squares = squares + 2.0 * crossed * difference + moved * difference**2
        outer, all_squares = total - inner, (pooled**2).sum() + total * difference
        variances = (inner_squares / n_first - (inner / n_first) ** 2) / (n_first - 1)
        outer_squares = all_squares - inner_squares
        variances += (outer_squares / n_second - (outer / n_second) ** 2) / (n_second - 1)
        errors = np.sqrt(np.maximum(variances, 0.0))
        shifts = inner / n_first - outer / n_second
        infinite = np.where(np.abs(shifts) > TIE, np.copysign(np.inf, shifts), 0.0)
        return np.where(errors > TIE, shifts / np.maximum(errors, TIE), infinite)

    return at


def sign_flip_test(differences: Matrix, confidence: float = CONFIDENCE, seed: int = 0) -> Tested:
    """Test whether paired differences (pairs,) are symmetric about 0, by their mean.

    Studentising would not change p: the sum of squares is constant, so t increases with the mean.
    """
    signs, exact = _signs(len(differences), seed)
    permuted, slopes = signs @ differences / len(differences), signs.mean(axis=1)
    value = float(differences.mean())
    return _tested(value, permuted, slopes, exact, SIGNS, confidence)


def _tested(
    value: float, permuted: Matrix, slopes: Matrix, exact: bool, kind: str, confidence: float
) -> Tested:
    """Test a difference, and invert the test.

    A shift of the data by s makes the observed value `value - s` and each permuted one
    `permuted - slopes * s`. So a permutation is at least as extreme as the observed one for the
    shifts up to, or from, a point that is known exactly: the ends are order statistics of these
    points (for signs Hartigan 1969, whose points are the means of all subsets; Nguyen 2009).

    Args:
        value: the observed difference.
        permuted: that of each permutation, (permutations,).
        slopes: what a permuted difference changes by if the observed one changes by 1.
        exact: whether these are all permutations; otherwise the observed one is added.
        kind: name of the permutations.
        confidence: of the interval.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        points = np.stack([(value - permuted) / (1 - slopes), (value + permuted) / (1 + slopes)])
    always = np.abs(slopes) > 1 - TIE  # the observed permutation, and its mirror
    lows = np.where(always, -np.inf, points.min(axis=0))
    highs = np.where(always, np.inf, points.max(axis=0))
    added = 0 if exact else 1
    needed = math.ceil((1 - confidence) * (len(permuted) + added) - added - TIE)
    ends = np.array([np.sort(lows)[needed - 1], np.sort(highs)[-needed]])
    ends = np.where(np.isfinite(ends), ends, np.nan)
    low, high = np.where(np.abs(ends) < 10 * TIE, 0.0, ends).tolist()  # a tie, which p counts
    p = _p_value(permuted, value, exact)
    return Tested(value, low, high, p, _how(len(permuted), exact, kind))


def _p_value(permuted: Matrix, observed: float, exact: bool) -> float:
    """Share at least as extreme as `observed`; with sampling, the observed one counts too (+1)."""
    extreme = int((np.abs(permuted) >= abs(observed) * (1 - TIE) - TIE).sum())
    return extreme / len(permuted) if exact else (extreme + 1) / (len(permuted) + 1)


def _how(count: int, exact: bool, kind: str) -> str:
    return f"exact: all {count:,} {kind}" if exact else f"Monte Carlo: {count:,} drawn {kind}"


@functools.lru_cache(maxsize=8)
def _groups(first: int, total: int, seed: int) -> tuple[Matrix, bool]:
    """1 for runs in the first sample, (permutations, total), and whether all are enumerated."""
    exact = math.comb(total, first) <= MOST_EXACT
    if exact:
        rows = np.array(list(itertools.combinations(range(total), first)))
    else:
        rows = np.tile(np.arange(total), (DRAWN, 1))
        rows = np.random.default_rng(seed).permuted(rows, axis=1)[:, :first]
    groups = np.zeros((len(rows), total))
    np.put_along_axis(groups, rows, 1.0, axis=1)
    return groups, exact


@functools.lru_cache(maxsize=8)
def _signs(pairs: int, seed: int) -> tuple[Matrix, bool]:
    """Signs of paired differences, (permutations, pairs), and whether all are enumerated."""
    if 2**pairs <= MOST_EXACT:
        return np.array(list(itertools.product((1.0, -1.0), repeat=pairs))), True
    return np.random.default_rng(seed).choice((1.0, -1.0), (DRAWN, pairs)), False


def holm(p_values: Sequence[float] | Matrix) -> Matrix:
    """Holm's correction of p values (tests,) for the family-wise error rate; NaN is no test."""
    from statsmodels.stats.multitest import multipletests

    corrected = np.array(p_values, dtype=np.float64)
    tests = ~np.isnan(corrected)
    if tests.any():
        corrected[tests] = multipletests(corrected[tests], method="holm")[1]
    return corrected


def holm_within(p_values: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Holm's correction of p values (tests,) within each family (tests,)."""
    codes = pd.factorize(pd.Series(families, dtype=object))[0]
    return pd.Series(p_values, dtype=float).groupby(codes).transform(holm).tolist()
