import numpy as np
import pytest
from rliable import library, metrics

from analysis import statistics
from analysis.statistics import Bootstrap
from magellan.errors import InputError

RNG = np.random.default_rng(3)
SCORES = RNG.random((5, 4))


def test_aggregates_of_a_hand_worked_matrix():
    # Two seeds, four categories: sorted 0 .1 .2 .3 .5 .7 .9 1; the middle four are .2 .3 .5 .7.
    scores = np.array([[0.0, 0.9, 0.2, 0.5], [1.0, 0.3, 0.7, 0.1]])
    np.testing.assert_allclose(
        statistics.aggregates(scores), [(0.2 + 0.3 + 0.5 + 0.7) / 4, 3.7 / 8, 1 - 3.7 / 8]
    )


def test_iqm_of_three_values_is_their_mean():
    scores = np.array([[0.0, 0.1, 0.8]])
    assert statistics.aggregates(scores)[0] == pytest.approx(0.3)


def test_iqm_against_an_independent_computation():
    flat = np.sort(SCORES.ravel())
    assert statistics.aggregates(SCORES)[0] == pytest.approx(flat[5:15].mean())


def test_iqm_curve_equals_rliable_at_each_point():
    curves = RNG.random((3, 4, 6))
    expected = [metrics.aggregate_iqm(curves[..., point]) for point in range(6)]
    np.testing.assert_allclose(statistics.iqm_curve(curves), expected)


def test_probability_of_improvement_by_hand():
    ours = np.array([[0.5, 0.9], [0.7, 0.1]])
    theirs = np.array([[0.5, 0.2], [0.6, 0.2]])
    # First task: .5 ties .5, loses to .6; .7 beats both: 2.5 / 4. Second: .9 beats both: 2 / 4.
    assert statistics.probability_of_improvement(ours, theirs)[0] == pytest.approx(4.5 / 8)


@pytest.mark.parametrize("levels", [3, 1_000])
def test_probability_of_improvement_equals_rliable(levels):
    ours = RNG.integers(0, levels, (4, 3)) / levels
    theirs = RNG.integers(0, levels, (6, 3)) / levels
    assert statistics.probability_of_improvement(ours, theirs)[0] == pytest.approx(
        metrics.probability_of_improvement(ours, theirs)
    )


def test_performance_profile_equals_rliable_and_counts_strictly_above():
    thresholds = np.linspace(0, 1, 11)
    np.testing.assert_allclose(
        statistics.performance_profile(SCORES, thresholds),
        library.score_distributions(SCORES, thresholds),
    )
    profile = statistics.performance_profile(np.array([[0.5, 1.0]]), np.array([0.4, 0.5, 1.0]))
    np.testing.assert_array_equal(profile, [1.0, 0.5, 0.0])


def test_area_under_the_curve_by_hand_with_uneven_points():
    curves = np.array([[[0.0, 1.0, 1.0], [0.2, 0.2, 0.2]]])
    area = statistics.area_under_curve(curves, np.array([0, 100, 400]))
    np.testing.assert_allclose(area, [[(50 + 300) / 400, 0.2]])


def test_area_of_a_single_point_is_the_success_there_and_disorder_is_refused():
    curves = np.full((2, 3, 1), 0.4)
    np.testing.assert_array_equal(
        statistics.area_under_curve(curves, np.array([0])), curves[..., 0]
    )
    with pytest.raises(InputError, match="increasing"):
        statistics.area_under_curve(np.zeros((1, 1, 2)), np.array([5, 5]))


def test_final_success_is_the_last_point():
    curves = RNG.random((2, 3, 4))
    np.testing.assert_array_equal(statistics.final_success(curves), curves[:, :, 3])


def mean(scores):
    return np.array([scores.mean()])


def test_interval_of_two_seeds_by_enumeration():
    # One category, two seeds: resample means .2, .5, .8 with chances 1/4, 1/2, 1/4.
    scores = np.array([[0.2], [0.8]])
    found = statistics.estimate(scores, mean, Bootstrap(repetitions=500, confidence=0.95))
    np.testing.assert_allclose([found.value[0], found.low[0], found.high[0]], [0.5, 0.2, 0.8])
    narrow = statistics.estimate(scores, mean, Bootstrap(repetitions=500, confidence=0.3))
    np.testing.assert_allclose([narrow.low[0], narrow.high[0]], [0.5, 0.5])


def test_interval_against_an_independent_stratified_bootstrap():
    scores = RNG.random((6, 3)) * np.array([0.1, 1.0, 0.5])
    found = statistics.estimate(scores, mean, Bootstrap(repetitions=4_000))
    picks = RNG.integers(0, 6, (20_000, 6, 3))
    means = scores[picks, np.arange(3)].mean(axis=(1, 2))
    np.testing.assert_allclose(
        [found.low[0], found.high[0]], np.quantile(means, [0.025, 0.975]), atol=0.01
    )


def test_intervals_are_seeded_and_leave_the_global_generator_alone():
    np.random.seed(11)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002
    first = statistics.estimate(SCORES, statistics.aggregates, Bootstrap(repetitions=150, seed=1))
    drawn = np.random.random(3)  # noqa: NPY002
    np.testing.assert_array_equal(drawn, expected)
    again = statistics.estimate(SCORES, statistics.aggregates, Bootstrap(repetitions=150, seed=1))
    other = statistics.estimate(SCORES, statistics.aggregates, Bootstrap(repetitions=150, seed=2))
    np.testing.assert_array_equal([first.low, first.high], [again.low, again.high])
    assert (first.low != other.low).any()


def test_the_global_generator_comes_back_after_an_error():
    np.random.seed(11)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002
    with pytest.raises(InputError), statistics.seeded_numpy(0):
        raise InputError("inside")
    assert np.random.random() == expected  # noqa: NPY002


def test_a_single_seed_has_no_interval():
    found = statistics.estimate(SCORES[:1], mean, Bootstrap())
    assert found.value[0] == pytest.approx(SCORES[0].mean())
    assert np.isnan([found.low[0], found.high[0]]).all()


@pytest.mark.parametrize(
    "scores", [np.array([[0.1, np.nan]]), np.array([0.1, 0.2]), np.empty((0, 3))]
)
def test_holes_and_wrong_shapes_are_refused(scores):
    with pytest.raises(InputError, match="scores"):
        statistics.estimate(scores, mean, Bootstrap())


def test_calibration_error_by_hand():
    predicted, observed = np.array([0.5, 0.9, 0.0]), np.array([0.4, 0.5, 0.0])
    error = statistics.calibration_error(predicted, observed, np.array([100, 25, 1]))
    assert error.bias == pytest.approx(0.5 / 3)
    assert error.mean_absolute_error == pytest.approx(0.5 / 3)
    assert error.root_mean_square_error == pytest.approx(np.sqrt((0.01 + 0.16) / 3))
    assert error.standard_error == pytest.approx((np.sqrt(0.24 / 100) + 0.1 + 0.0) / 3)
