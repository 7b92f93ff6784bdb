"""Intervals and tests over runs: against arch and scipy, by hand, where nothing is to resample."""

import numpy as np
import pytest
from arch.bootstrap import IIDBootstrap
from rliable import library, metrics
from scipy import stats

from analysis.statistics import intervals, matrices
from analysis.statistics.intervals import Bootstrap, holm, permutation_test, sign_flip_test
from tests.runs import refusal

RNG = np.random.default_rng(3)
VALUES = np.clip(RNG.normal(0.5, 0.15, (9, 3)), 0, 1)
MANY = Bootstrap(repetitions=8_000)


def bounds(estimate):
    return np.stack([estimate.low, estimate.high])


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
    assert (estimate.low != intervals.mean_estimate(VALUES, Bootstrap(8_000, seed=1)).low).any()


@pytest.mark.parametrize("runs", [2, 3])
def test_two_or_three_runs_have_the_interval_of_student(runs):
    values = np.array([[0.3], [0.4], [0.35]])[:runs]
    estimate = intervals.mean_estimate(values, Bootstrap())
    assert estimate.method[0] == intervals.STUDENT_T
    half = stats.t.ppf(0.975, runs - 1) * values.std(ddof=1) / np.sqrt(runs)
    expected = np.clip([estimate.value[0] - half, estimate.value[0] + half], 0, 1)
    np.testing.assert_allclose(bounds(estimate)[:, 0], expected)


def test_equal_runs_have_intervals_without_width_and_a_single_one_has_none():
    same = np.full((5, 2), 0.1) + np.array([0.0, 0.2])
    for values, method in ((same, intervals.EQUAL), (VALUES[:1], intervals.SINGLE)):
        for estimate in (
            intervals.mean_estimate(values, Bootstrap()),
            intervals.percentile_estimate([values], matrices.iqm, Bootstrap()),
        ):
            expected = estimate.value if method == intervals.EQUAL else np.nan * estimate.value
            np.testing.assert_allclose(bounds(estimate), np.stack([expected] * 2), rtol=1e-9)
            assert np.isfinite(estimate.value).all()
            assert set(estimate.method) == {method}
    mixed = intervals.mean_estimate(np.hstack([same, VALUES[:5]]), Bootstrap())
    assert list(mixed.method) == [*[intervals.EQUAL] * 2, *[intervals.STUDENTISED] * 3]


def test_intervals_are_seeded():
    intervals.resample_rows.cache_clear()
    one, other = (intervals.mean_estimate(VALUES, Bootstrap(150, seed=seed)) for seed in (1, 2))
    assert (one.low != other.low).any()


@pytest.mark.parametrize(
    "scores", [np.array([[0.1, np.nan]]), np.array([0.1, 0.2]), np.empty((0, 3))]
)
def test_holes_and_wrong_shapes_are_refused(scores):
    assert "scores" in refusal(intervals.mean_estimate, scores, Bootstrap())
    assert "scores" in refusal(intervals.percentile_estimate, [scores], matrices.iqm, Bootstrap())


@pytest.mark.parametrize(("first", "smallest"), [(5, 2 / 252), (4, 1 / 126)])
def test_runs_however_far_apart_have_the_smallest_p(first, smallest):
    """Their t is in the hundreds, where rounding hides that the mirrored split is as extreme."""
    random = np.random.default_rng(0)
    for _ in range(200):
        near, far = 0.1 + 1e-3 * random.standard_normal(5), 0.9 + 1e-3 * random.random(first)
        assert permutation_test(far, near).p == pytest.approx(smallest)


def test_permutation_test_by_hand():
    """Of the six splits of 1 2 | 3 4 two are as extreme: the observed one and its mirror.

    For shifts of 1 4 | 0 1 beyond 0 and 4 only its mirror is as extreme: p is 2 of 6.
    """
    test = permutation_test(np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    assert test[3:] == (2 / 6, "exact: all 6 splits of the runs")
    assert np.isnan(test[1:3]).all()
    test = permutation_test(np.array([1.0, 4.0]), np.array([0.0, 1.0]), 0.6)
    assert test[:3] == pytest.approx((2.0, 0.0, 4.0))


def test_ties_count_as_at_least_as_far():
    test = permutation_test(np.array([0.1, 0.2]), np.array([0.1, 0.2, 0.1]))
    assert test.p == 1.0  # .15 against .133: no other split is nearer
    assert permutation_test(np.full(4, 0.3), np.full(4, 0.3)).p == 1.0


def test_many_runs_are_sampled_with_the_observed_split_among_them():
    rng = np.random.default_rng(5)
    first, second = rng.normal(0.5, 0.1, 20), rng.normal(0.57, 0.1, 20)
    test = permutation_test(first, second, seed=1)
    assert test.method.startswith("Monte Carlo: 99,999")
    assert test.p == pytest.approx(stats.ttest_ind(first, second).pvalue, rel=0.15)
    assert test == permutation_test(first, second, seed=1)
    assert test != permutation_test(first, second, seed=2)
    assert permutation_test(np.zeros(20), np.ones(20)).p == 1 / 100_000


def welch(x, y, axis):
    return np.abs(stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic)


def test_runs_of_other_numbers_are_compared_by_welchs_t():
    rng = np.random.default_rng(6)
    first, second = rng.normal(0.6, 0.3, 5), rng.normal(0.45, 0.05, 7)
    both = {"alternative": "greater", "n_resamples": np.inf}
    expected = stats.permutation_test((first, second), welch, **both).pvalue
    assert permutation_test(first, second).p == pytest.approx(expected)
    plain = stats.permutation_test(
        (first, second), lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)), **both
    )
    assert plain.pvalue != pytest.approx(expected)


def test_sign_flip_test_by_hand_and_against_scipy():
    test = sign_flip_test(np.array([0.1, 0.2, 0.3]))
    assert test[3:] == (2 / 8, "exact: all 8 signs of the pairs")
    pairs = np.random.default_rng(5).normal(0.1, 0.2, 9)
    expected = stats.permutation_test(
        (pairs,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test(pairs).p == pytest.approx(expected.pvalue)
    # p is 2/8 outside the range of three pairs, and 4/8 outside the second means of subsets.
    pairs = np.array([1.0, 2.0, 6.0])  # means of subsets: 1, 1.5, 2, 3, 3.5, 4, 6
    assert sign_flip_test(pairs, 0.7)[1:3] == pytest.approx((1.0, 6.0))
    assert sign_flip_test(pairs, 0.45)[1:3] == pytest.approx((1.5, 4.0))
    assert np.isnan(sign_flip_test(pairs)[1:3]).all()
    assert sign_flip_test(np.full(6, 0.2))[1:3] == pytest.approx((0.2, 0.2))


def differences(random):
    """Samples of two to nine runs, some with ties, outliers, or other spreads and numbers."""
    first, second = (random.normal(0, random.choice([1, 5]), n) for n in random.integers(2, 8, 2))
    pairs = random.normal(0, 1, random.integers(2, 10))
    pairs[0] *= random.choice([1.0, 20.0])
    shift, digits = random.choice([0.0, 1.0, 3.0]), random.choice([0, 1, 9])
    yield sign_flip_test, [np.round(pairs + shift, digits)]
    yield permutation_test, [np.round(first + 2 * shift, digits), np.round(second, digits)]


def test_an_interval_excludes_0_where_p_is_below_5_percent():
    random, below = np.random.default_rng(7), 0
    for test, samples in (each for _ in range(100) for each in differences(random)):
        found = test(*samples)
        assert (found.low > 0.0 or found.high < 0.0) == (found.p < 0.05)
        below += found.p < 0.05
        first, *others = samples
        # Turned round, and moved: the interval turns and moves with the data.
        turned = test(*(-sample for sample in samples))
        moved = test(first + 0.25, *others)
        same = {"rtol": 1e-6, "atol": 1e-6}
        np.testing.assert_allclose([-turned.high, -turned.low], found[1:3], **same)
        np.testing.assert_allclose(np.array(moved[1:3]) - 0.25, found[1:3], **same)
    assert below > 20


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.6])), [1.0, 1.0])
    np.testing.assert_allclose(holm(np.array([0.02, np.nan])), [0.02, np.nan])
    assert len(holm(np.array([]))) == 0
    assert holm(np.array([0.03]))[0] == 0.03


SCORES = RNG.random((5, 4))


def test_iqm_and_its_curve_equal_rliable():
    curves = RNG.random((3, 4, 6))
    expected = [metrics.aggregate_iqm(curves[..., point]) for point in range(6)]
    np.testing.assert_allclose(matrices.iqm_curve(curves), expected)
    assert matrices.iqm(SCORES) == pytest.approx(metrics.aggregate_iqm(SCORES))


@pytest.mark.parametrize("levels", [3, 1_000])
def test_probability_of_improvement_equals_rliable(levels):
    first = RNG.integers(0, levels, (4, 3)) / levels
    second = RNG.integers(0, levels, (6, 3)) / levels
    assert matrices.probability_of_improvement(first, second)[0] == pytest.approx(
        metrics.probability_of_improvement(first, second)
    )


def test_performance_profile_equals_rliable_and_counts_strictly_above():
    thresholds = np.linspace(0, 1, 11)
    np.testing.assert_allclose(
        matrices.performance_profile(SCORES, thresholds),
        library.score_distributions(SCORES, thresholds),
    )
    profile = matrices.performance_profile(np.array([[0.5, 1.0]]), np.array([0.4, 0.5, 1.0]))
    np.testing.assert_array_equal(profile, [1.0, 0.5, 0.0])


def test_the_mean_over_training_by_hand_with_uneven_points():
    weights = matrices.training_weights(np.array([0, 100, 400]))
    np.testing.assert_allclose([0.0, 1.0, 1.0] @ weights, (50 + 300) / 400)
    np.testing.assert_allclose([0.2, 0.2, 0.2] @ weights, 0.2)
    np.testing.assert_array_equal(matrices.training_weights(np.array([0])), [1.0])
    assert "increasing" in refusal(matrices.training_weights, np.array([5, 5]))


def test_calibration_error_by_hand():
    predicted, observed = np.array([0.5, 0.9, 0.0]), np.array([0.4, 0.5, 0.0])
    episodes, lengths = np.array([100, 25, 1]), np.array([0, 10, 40])
    assert matrices.calibration_error(predicted, observed, episodes, lengths) == pytest.approx(
        {
            "bias": (0.1 * 5 + 0.4 * 20) / 40,
            "mean_absolute_error": (0.1 * 5 + 0.4 * 20) / 40,
            "root_mean_square_error": np.sqrt((0.01 * 5 + 0.16 * 20) / 40),
            "standard_error": (np.sqrt(0.24 / 100) * 5 + 0.1 * 20) / 40,
        }
    )
