"""Statistics of scores as matrices: rows are seeds, columns are goal categories.

Success rates lie in [0, 1], so no normalisation is needed. All functions are pure: a matrix in,
numbers out. Intervals are percentile intervals of rliable's stratified bootstrap (Agarwal et al.
2021), which resamples seeds independently within each category. Few seeds make them honest but
crude: with two seeds a category has only three distinct resamples.

rliable and scipy are imported where they are used: they take longer to load than a figure to draw,
and the figures need only the names in this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from magellan.errors import InputError

Matrix = NDArray[np.float64]

METHOD = "percentile stratified bootstrap over seeds, within category"
AGGREGATES = ("iqm", "mean")


@dataclass(frozen=True)
class Bootstrap:
    """Resampling of the intervals: number of resamples, level in (0, 1), seed."""

    repetitions: int = 2_000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Estimate:
    """A point estimate with its interval; arrays of one shape. NaN bounds: a single seed."""

    value: Matrix
    low: Matrix
    high: Matrix


@contextlib.contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Seed numpy's global generator inside the block and give it back as it was.

    rliable draws its resamples from the global generator and ignores `random_state`, so this is
    the only way to equal intervals in two reports.
    """
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def estimate(
    scores: Matrix | list[Matrix], function: Callable[..., Matrix], bootstrap: Bootstrap
) -> Estimate:
    """Point and interval of `function` over resampled seeds.

    Args:
        scores: (runs, tasks) or (runs, tasks, points); or a list of such arrays, which are
            resampled independently and passed as separate arguments.
        function: maps the array (or arrays) to a vector; applied to each resample.
        bootstrap: repetitions, level and seed.

    Returns:
        An estimate of the function's shape. With one seed in any array the bounds are NaN: a
        single run says nothing about the spread between runs.
    """
    arrays = scores if isinstance(scores, list) else [scores]
    for array in arrays:
        _check_scores(array)
    if any(array.shape[0] == 1 for array in arrays):
        value = np.asarray(function(*arrays), dtype=np.float64)
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    from rliable import library as rly

    with seeded_numpy(bootstrap.seed):
        points, intervals = rly.get_interval_estimates(
            {"scores": scores},
            function,
            reps=bootstrap.repetitions,
            confidence_interval_size=bootstrap.confidence,
        )
    low, high = intervals["scores"]
    return Estimate(np.asarray(points["scores"]), low, high)


def _check_scores(scores: Matrix) -> None:
    if scores.ndim < 2 or 0 in scores.shape:
        raise InputError(
            f"scores: shape {scores.shape} is not (runs, tasks) with at least one each"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores: a matrix of scores holds NaN or infinity")


def final_success(curves: Matrix) -> Matrix:
    """Success at the last evaluation point: (runs, tasks, points) to (runs, tasks)."""
    return curves[..., -1]


def area_under_curve(curves: Matrix, episodes: Matrix) -> Matrix:
    """Mean success over training: trapezoid area divided by the length of training.

    Args:
        curves: success, (runs, tasks, points).
        episodes: training episodes at each point, increasing, (points,).

    Returns:
        (runs, tasks), in [0, 1]; with a single point the success there.
    """
    episodes = np.asarray(episodes, dtype=np.float64)
    if len(episodes) == 1:
        return curves[..., 0]
    if (np.diff(episodes) <= 0).any():
        raise InputError("area under the curve: evaluation points are not increasing in episodes")
    return np.trapezoid(curves, episodes, axis=-1) / (episodes[-1] - episodes[0])


def aggregates(scores: Matrix) -> Matrix:
    """IQM and mean of (runs, tasks): (2,), in the order of `AGGREGATES`.

    The IQM drops the lowest and the highest quarter of all runs x tasks values together; with three
    values or fewer nothing is dropped and it equals the mean.
    """
    from rliable import metrics

    return np.array([metrics.aggregate_iqm(scores), metrics.aggregate_mean(scores)])


def iqm_curve(curves: Matrix) -> Matrix:
    """IQM over runs x tasks at each point: (runs, tasks, points) to (points,)."""
    import scipy.stats

    flat = curves.reshape(-1, curves.shape[-1])
    return scipy.stats.trim_mean(flat, proportiontocut=0.25, axis=0)


def mean_over_runs(curves: Matrix) -> Matrix:
    """Mean over runs, flattened: (runs, tasks, points) to (tasks * points,)."""
    return curves.mean(axis=0).ravel()


def probability_of_improvement(ours: Matrix, theirs: Matrix) -> Matrix:
    """P(a run of ours scores higher than one of theirs), averaged over tasks: (1,).

    Args:
        ours: (runs, tasks).
        theirs: (other runs, tasks).

    Ties count one half. Equal to rliable's metric, which calls a Mann-Whitney test for each task
    and each resample and is some hundred times slower.
    """
    if ours.shape[1] != theirs.shape[1]:
        raise InputError(f"scores: {ours.shape[1]} tasks against {theirs.shape[1]}")
    difference = np.sign(ours[:, None, :] - theirs[None, :, :])
    return np.array([0.5 + 0.5 * difference.mean()])


def performance_profile(scores: Matrix, thresholds: Matrix) -> Matrix:
    """Fraction of runs x tasks scoring above each threshold: (runs, tasks) to (thresholds,)."""
    above = scores.ravel()[:, None] > np.asarray(thresholds)[None, :]
    return above.mean(axis=0)


@dataclass(frozen=True)
class CalibrationError:
    """How far predicted competence is from observed success, over the evaluation points of a run.

    Attributes:
        bias: mean of predicted minus observed; positive is overconfident.
        mean_absolute_error, root_mean_square_error: the usual ones.
        standard_error: mean over points of the binomial standard error of the observed success: a
            perfect prediction would still be about this far off.
    """

    bias: float
    mean_absolute_error: float
    root_mean_square_error: float
    standard_error: float


def calibration_error(predicted: Matrix, observed: Matrix, episodes: Matrix) -> CalibrationError:
    """Compare predictions with observed rates of so many `episodes`; all three (points,)."""
    difference = predicted - observed
    standard_errors = np.sqrt(observed * (1.0 - observed) / episodes)
    return CalibrationError(
        bias=float(difference.mean()),
        mean_absolute_error=float(np.abs(difference).mean()),
        root_mean_square_error=float(np.sqrt((difference**2).mean())),
        standard_error=float(standard_errors.mean()),
    )
