"""Intervals over runs: against arch and scipy, by hand, and where there is nothing to resample."""

import numpy as np
import pytest
from arch.bootstrap import IIDBootstrap
from scipy import stats

from analysis.statistics import intervals, matrices
from analysis.statistics.intervals import Bootstrap
from magellan.core.errors import InputError

RNG = np.random.default_rng(3)
VALUES = np.clip(RNG.normal(0.5, 0.15, (9, 3)), 0, 1)
MANY = Bootstrap(repetitions=8_000)


def bounds(estimate):
    return np.stack([estimate.low, estimate.high])


def mean_of(scores):
    return scores.mean(axis=(-2, -1))[..., None]


def test_percentile_intervals_equal_those_of_arch():
    function = matrices.iqm
    estimate = intervals.percentile_estimate([VALUES], function, Bootstrap(500, 0.9, seed=5))
    expected = IIDBootstrap(VALUES, seed=np.random.default_rng(5)).conf_int(
        function, 500, method="percentile", size=0.9
    )
    np.testing.assert_allclose(bounds(estimate), expected)
    assert set(estimate.method) == {intervals.PERCENTILE}


def test_studentised_intervals_are_those_of_arch():
    """Those of arch take the spread of the resamples for the scale: not so for n - 1."""

    def mean(values):
        return values.mean(axis=0)

    def error(parameters, values):
        return values.std(axis=0, ddof=1) / np.sqrt(len(values))

    expected = IIDBootstrap(VALUES, seed=np.random.default_rng(0)).conf_int(
        mean, 8_000, method="studentized", std_err_func=error
    )
    estimate = intervals.mean_estimate(VALUES, MANY)
    half = (expected - estimate.value) * np.sqrt(len(VALUES) / (len(VALUES) - 1))
    np.testing.assert_allclose(bounds(estimate) - estimate.value, half, rtol=0.03)
    assert set(estimate.method) == {intervals.STUDENTISED}


@pytest.mark.slow
def test_a_difference_has_the_interval_of_welch_where_values_are_normal():
    ours, theirs = RNG.normal(0.6, 0.05, (300, 1)), RNG.normal(0.5, 0.1, (200, 1))
    estimate = intervals.difference_estimate(ours, theirs, MANY)
    test = stats.ttest_ind(ours[:, 0], theirs[:, 0], equal_var=False).confidence_interval()
    np.testing.assert_allclose(bounds(estimate)[:, 0], [test.low, test.high], atol=0.002)
    turned = intervals.difference_estimate(theirs, ours, MANY)
    assert turned.value == pytest.approx(-estimate.value)


def test_whole_runs_are_resampled():
    """Categories that rise together: as wide as one category alone; against each other: nothing."""
    category = RNG.random((6, 1))
    alone, alike, against = (
        intervals.percentile_estimate([scores], mean_of, Bootstrap())
        for scores in (
            category,
            np.hstack([category, category]),
            np.hstack([category, 1 - category]),
        )
    )
    np.testing.assert_allclose(bounds(alike), bounds(alone))
    np.testing.assert_allclose(bounds(against), 0.5)


@pytest.mark.parametrize("runs", [2, 3])
def test_two_or_three_runs_have_the_interval_of_student(runs):
    values = np.array([[0.3], [0.4], [0.35]])[:runs]
    estimate = intervals.mean_estimate(values, Bootstrap())
    assert estimate.method[0] == intervals.STUDENT_T
    half = stats.t.ppf(0.975, runs - 1) * values.std(ddof=1) / np.sqrt(runs)
    expected = np.clip([estimate.value[0] - half, estimate.value[0] + half], 0, 1)
    np.testing.assert_allclose(bounds(estimate)[:, 0], expected)
    both = intervals.difference_estimate(values, values[::-1] + 0.1, Bootstrap())
    assert np.isfinite(bounds(both)).all()


def test_percentiles_of_two_runs_by_enumeration():
    # Resample means .2, .5, .8 with chances 1/4, 1/2, 1/4.
    scores = np.array([[0.2], [0.8]])
    estimate = intervals.percentile_estimate([scores], mean_of, Bootstrap(500))
    np.testing.assert_allclose(bounds(estimate)[:, 0], [0.2, 0.8])
    narrow = intervals.percentile_estimate([scores], mean_of, Bootstrap(500, confidence=0.3))
    np.testing.assert_allclose(bounds(narrow)[:, 0], [0.5, 0.5])


def test_equal_runs_have_intervals_without_width():
    same = np.full((5, 2), 0.1) + np.array([0.0, 0.2])
    for estimate in (
        intervals.mean_estimate(same, Bootstrap()),
        intervals.difference_estimate(same, same[:3], Bootstrap()),
        intervals.percentile_estimate([same], matrices.iqm, Bootstrap()),
    ):
        np.testing.assert_allclose(bounds(estimate), np.stack([estimate.value] * 2), atol=1e-12)
        assert set(estimate.method) == {intervals.EQUAL}
    mixed = np.hstack([same, VALUES[:5]])
    assert list(intervals.mean_estimate(mixed, Bootstrap()).method) == [
        *[intervals.EQUAL] * 2,
        *[intervals.STUDENTISED] * 3,
    ]


def test_nearly_equal_runs_with_one_outlier_give_bounds_within_the_range():
    """Resamples without the outlier have hardly any spread: huge ratios, cut at 0 and 1."""
    values = np.array([[0.3], [0.3], [0.3], [0.3], [0.9]])
    estimate = intervals.mean_estimate(values, Bootstrap())
    assert 0.0 <= estimate.low[0] <= estimate.value[0] <= estimate.high[0] <= 1.0
    assert estimate.high[0] - estimate.low[0] > 0.3


def test_a_single_run_has_no_interval():
    for estimate in (
        intervals.mean_estimate(VALUES[:1], Bootstrap()),
        intervals.difference_estimate(VALUES, VALUES[:1], Bootstrap()),
        intervals.percentile_estimate([VALUES[:1]], matrices.iqm, Bootstrap()),
    ):
        assert np.isfinite(estimate.value).all()
        assert np.isnan(bounds(estimate)).all()
        assert set(estimate.method) == {intervals.SINGLE}


def test_intervals_are_seeded_and_leave_the_global_generator_alone():
    np.random.seed(11)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002
    intervals.resample_rows.cache_clear()
    intervals.resample_weights.cache_clear()
    first = intervals.mean_estimate(VALUES, Bootstrap(150, seed=1))
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002
    intervals.resample_rows.cache_clear()
    intervals.resample_weights.cache_clear()
    again = intervals.mean_estimate(VALUES, Bootstrap(150, seed=1))
    other = intervals.mean_estimate(VALUES, Bootstrap(150, seed=2))
    np.testing.assert_array_equal(bounds(first), bounds(again))
    assert (first.low != other.low).any()


@pytest.mark.parametrize(
    "scores", [np.array([[0.1, np.nan]]), np.array([0.1, 0.2]), np.empty((0, 3))]
)
def test_holes_and_wrong_shapes_are_refused(scores):
    with pytest.raises(InputError, match="scores"):
        intervals.mean_estimate(scores, Bootstrap())
    with pytest.raises(InputError, match="scores"):
        intervals.percentile_estimate([scores], matrices.iqm, Bootstrap())
