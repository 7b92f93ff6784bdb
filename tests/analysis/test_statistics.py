import numpy as np
import pytest
from rliable import library, metrics

from analysis.statistics import matrices
from magellan.core.errors import InputError

RNG = np.random.default_rng(3)
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
    with pytest.raises(InputError, match="increasing"):
        matrices.training_weights(np.array([5, 5]))


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
