"""Scores of an experiment as matrices: rows are runs (seeds), columns are categories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.statistics import intervals
from analysis.statistics.intervals import Bootstrap, Estimate, Matrix
from analysis.tables.grid import RUN_COLUMNS, Algorithm
from analysis.tables.results import SPLITS, Results
from magellan.config.schema import AnalysisConfig
from magellan.core.errors import InputError

SCORES = ("final", "area")
LEARNT, COLLAPSED_BELOW = 0.5, 0.2
"""Learnt: success above LEARNT. Collapse: success below COLLAPSED_BELOW at the next evaluation."""
BURN_IN = 1 / 8
"""Share of training left out of learning progress and lockstep: at first all predictions move away
from their initial value together."""
INTERVAL_COLUMNS = ("runs", "tasks", "method", "repetitions", "confidence")
"""Columns of `provenance`: how an interval was made."""

Row = dict[str, Any]


def bootstrap_of(results: Results) -> Bootstrap:
    """Resampling settings of an experiment."""
    config = settings(results)
    return Bootstrap(config.bootstrap_repetitions, config.confidence, config.bootstrap_seed)


def settings(results: Results) -> AnalysisConfig:
    """Analysis settings of an experiment; defaults where older tables lack them."""
    return AnalysisConfig.model_validate(results.experiment["analysis"])


def evaluated_categories(results: Results, goal_space: str, split: str) -> tuple[str, ...]:
    """Evaluated categories, in the order of the world: the columns of all matrices."""
    names, evaluated = results.categories.names, results.evaluated
    return tuple(name for name in names if (goal_space, split, name) in evaluated)


def evaluation_points(results: Results, goal_space: str) -> Matrix:
    """Training length at each evaluation point, in `results.unit`, increasing: (points,)."""
    return np.sort(results.points[goal_space])


def success_curves(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, column: str = "success"
) -> Matrix:
    """Success of one algorithm, or another column of evaluations: (seeds, categories, points)."""
    where = {**algorithm._asdict(), "goal_space": goal_space, "split": split}
    frame = results.table("evaluation", **where)
    axes = {
        "seed": results.seeds_of(algorithm, goal_space),
        "category": evaluated_categories(results, goal_space, split),
        results.unit_column: evaluation_points(results, goal_space),
    }
    places = np.array([pd.Index(keys).get_indexer(frame[name]) for name, keys in axes.items()])
    asked = (places >= 0).all(axis=0)
    curves = np.full([len(keys) for keys in axes.values()], np.nan)
    curves[tuple(places[:, asked])] = frame[column][asked]
    return curves


def run_scores(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, score: str = "area"
) -> pd.DataFrame:
    """A score of each run of one algorithm: (seeds, categories).

    `first`, `final`: success at the first and the last evaluation; `gain`: their difference.
    `area`: mean success over training, the area under the curve by the trapezoid rule, divided by
    the training length; `equal`: the same up to `equal_length`.
    """
    where = results, algorithm, goal_space, split
    curves = success_curves(*where)
    first, final = curves[..., 0], curves[..., -1]
    if score == "area":
        values = curves @ training_weights(evaluation_points(results, goal_space))
    elif score == "equal":
        points = success_curves(*where, other_unit(results))[:, :1]  # those of all categories
        mean = np.vectorize(mean_until, signature="(n),(n),()->()")
        values = mean(curves, points, equal_length(results, goal_space))
    else:
        values = {"first": first, "final": final, "gain": final - first}[score]
    categories = evaluated_categories(results, goal_space, split)
    return pd.DataFrame(values, results.seeds_of(algorithm, goal_space), list(categories))


def other_unit(results: Results) -> str:
    """Column of what a run's budget does not fix: steps if episodes end the runs, else episodes."""
    return "step" if results.unit == "episodes" else "episode"


def equal_length(results: Results, goal_space: str) -> float:
    """Length of the shortest run of a goal space, in `other_unit`."""
    frame = results.table("evaluation", goal_space=goal_space)
    return float(frame.groupby(list(RUN_COLUMNS))[other_unit(results)].max().min())


def collapsed(curves: Matrix) -> NDArray[np.bool_]:
    """Falls from above `LEARNT` to below `COLLAPSED_BELOW`: (..., points) -> (..., points - 1)."""
    return (curves[..., :-1] > LEARNT) & (curves[..., 1:] < COLLAPSED_BELOW)


def algorithms_of(results: Results) -> Iterator[tuple[str, str, Algorithm]]:
    """Every goal space, split and algorithm that has runs."""
    for goal_space in results.goal_spaces:
        for split, algorithm in itertools.product(SPLITS, results.algorithms_in(goal_space)):
            yield goal_space, split, algorithm


def baselines_of(results: Results) -> Iterator[tuple[Row, tuple[Algorithm, Algorithm]]]:
    """The reference with each other algorithm of a goal space, on both splits.

    Nothing where the reference has no run.

    Yields:
        Columns that name the pair, and the pair.
    """
    reference = results.reference
    for goal_space, split, baseline in algorithms_of(results):
        if reference in results.algorithms_in(goal_space) and baseline != reference:
            names = {"baseline": baseline.sampler, "baseline_variant": baseline.variant}
            where = {"goal_space": goal_space, "split": split}
            yield where | reference._asdict() | names, (reference, baseline)


def provenance(bootstrap: Bootstrap, shape: tuple[int, ...], method: str | NDArray) -> Row:
    """Columns that say how an interval of a (runs, tasks, ...) matrix, or several, were made."""
    runs, tasks = shape[:2]
    resampled = np.isin(method, (intervals.STUDENTISED, intervals.PERCENTILE))
    return {
        "runs": runs,
        "tasks": tasks,
        "method": method,
        "repetitions": bootstrap.repetitions * resampled,
        "confidence": bootstrap.confidence,
    }


def interval_of(
    estimate: Estimate, index: int | slice, shape: tuple[int, ...], bootstrap: Bootstrap
) -> Row:
    """Bounds of one number of an estimate, or of several, and their `provenance`."""
    bounds = {"low": estimate.low[index], "high": estimate.high[index]}
    return bounds | provenance(bootstrap, shape, estimate.method[index])


# --- measures: pure functions; most accept leading axes, to compute all resamples at once ---


def training_weights(lengths: Matrix) -> Matrix:
    """Weights of the evaluations in a mean over training, by the trapezoid rule: (points,), sum 1.

    Args:
        lengths: training length at each evaluation, in any unit, increasing, (points,); with a
            single one the mean is the value there.
    """
    gaps = np.diff(np.asarray(lengths, dtype=np.float64))
    if (gaps <= 0).any():
        raise InputError("mean over training: evaluation points are not increasing")
    if not len(gaps):
        return np.ones(1)
    return (np.append(gaps, 0.0) + np.append(0.0, gaps)) / (2.0 * gaps.sum())


def mean_until(curve: Matrix, steps: Matrix, limit: float) -> float:
    """Mean of a curve up to `limit`, by the rule of `training_weights`.

    Args:
        curve: success, (points,).
        steps: environment steps or episodes at each point of the run, not decreasing, (points,).
        limit: at most the last of `steps`; the curve is interpolated linearly there.
    """
    if (np.diff(steps) < 0).any():
        raise InputError("evaluation.csv: counts fall from one evaluation to the next")
    inside = steps < limit
    if not inside.any():
        return float(curve[0])
    x = np.append(steps[inside], limit)
    y = np.append(curve[inside], np.interp(limit, steps, curve))
    return float(np.trapezoid(y, x) / (limit - x[0]))


def iqm(scores: Matrix) -> Matrix:
    """IQM over runs x tasks: (..., runs, tasks) to (..., 1)."""
    return iqm_curve(scores[..., None])


def iqm_curve(curves: Matrix) -> Matrix:
    """IQM over runs x tasks at each point: (..., runs, tasks, points) to (..., points)."""
    import scipy.stats

    *lead, runs, tasks, points = curves.shape
    flat = curves.reshape(*lead, runs * tasks, points)
    return np.asarray(scipy.stats.trim_mean(flat, proportiontocut=0.25, axis=-2))


def probability_of_improvement(first: Matrix, second: Matrix) -> Matrix:
    """P(a run of `first` scores higher than one of `second`), averaged over tasks: (..., 1).

    Args:
        first: (..., runs, tasks).
        second: (..., other runs, tasks).

    Ties count one half. Equal to rliable's metric, which runs a Mann-Whitney test for each task and
    resample and is about a hundred times slower.
    """
    difference = np.sign(first[..., :, None, :] - second[..., None, :, :])
    return 0.5 + 0.5 * difference.mean(axis=(-3, -2, -1))[..., None]


def performance_profile(scores: Matrix, thresholds: Matrix) -> Matrix:
    """Fraction of runs x tasks above each threshold: (..., runs, tasks) to (..., thresholds)."""
    above = scores[..., None] > np.asarray(thresholds)
    return above.mean(axis=(-3, -2))


def calibration_error(
    predicted: Matrix, observed: Matrix, episodes: Matrix, lengths: Matrix
) -> dict[str, float]:
    """Error of predictions against success rates over `episodes` episodes; all (points,).

    Returns:
        Means over training, with `training_weights(lengths)`. `bias`: predicted minus observed;
        positive is overconfident. `mean_absolute_error`, `root_mean_square_error`: the usual ones.
        `standard_error`: binomial standard error of the observed success, about the error that a
        perfect prediction would have.
    """
    difference, weights = predicted - observed, training_weights(lengths)
    return {
        "bias": float(difference @ weights),
        "mean_absolute_error": float(np.abs(difference) @ weights),
        "root_mean_square_error": float(np.sqrt(difference**2 @ weights)),
        "standard_error": float(np.sqrt(observed * (1.0 - observed) / episodes) @ weights),
    }
