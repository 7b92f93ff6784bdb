"""Time to mastery: the rule, Kaplan-Meier, the restricted mean and the log-rank test, by hand."""

import numpy as np
import pytest
from scipy import stats

from analysis.statistics import mastery
from analysis.statistics.mastery import (
    Steps,
    kaplan_meier,
    log_rank,
    mastery_times,
    restricted_mean,
)
from magellan.core.errors import InputError

EPISODES = np.array([0, 100, 200, 300])


def group(times, censored=()):
    """Runs that mastered at `times`, and others that were watched until `censored`."""
    both = np.array([*times, *censored], dtype=float)
    return both, np.arange(len(both)) < len(times)


@pytest.mark.parametrize(
    ("curve", "time", "mastered"),
    [
        ([0.0, 0.95, 0.92, 0.1], 100, True),  # stays above at two in a row: the first of them
        ([0.0, 0.95, 0.1, 0.95], 300, False),  # never two in a row; nothing confirms the last
        ([0.95, 0.91, 0.0, 0.0], 0, True),
        ([0.0, 0.9, 0.9, 0.9], 300, False),  # above, not equal
        ([0.0, 0.0, 0.95, 0.95], 200, True),
        ([0.0, 0.0, 0.0, 0.0], 300, False),
    ],
)
def test_the_rule_of_mastery(curve, time, mastered):
    times, masters = mastery_times(np.array([curve]), EPISODES)
    assert (times[0], masters[0]) == (time, mastered)


def test_a_single_evaluation_shows_no_mastery():
    times, mastered = mastery_times(np.array([[1.0]]), np.array([0]))
    assert (times[0], mastered[0]) == (0, False)


def test_kaplan_meier_by_hand():
    """Runs end at 1, 2, 2 (censored), 3, 5 (censored): 4/5, then 4/5 * 3/4, then * 1/2."""
    times = np.array([1.0, 2.0, 2.0, 3.0, 5.0])
    steps = kaplan_meier(times, np.array([True, True, False, True, False]))
    np.testing.assert_allclose(steps.times, [0, 1, 2, 3])
    np.testing.assert_allclose(steps.shares, [1, 0.8, 0.6, 0.3])
    assert restricted_mean(steps, 5.0) == pytest.approx(1 + 0.8 + 0.6 + 2 * 0.3)
    assert mastery.median_time(steps) == 3


def test_kaplan_meier_equals_that_of_scipy():
    rng = np.random.default_rng(2)
    times, mastered = np.ceil(rng.exponential(3, 40)), rng.random(40) < 0.6
    steps = kaplan_meier(times, mastered)
    data = stats.CensoredData(uncensored=times[mastered], right=times[~mastered])
    expected = stats.ecdf(data).sf
    np.testing.assert_allclose(steps.shares[1:], expected.evaluate(steps.times[1:]))


def test_restricted_mean_is_the_mean_of_times_where_all_are_censored_at_the_limit():
    times, mastered = group([100, 200, 200], [300, 300])
    assert restricted_mean(kaplan_meier(times, mastered), 300) == pytest.approx(times.mean())
    assert restricted_mean(Steps(np.array([0.0, 200.0]), np.array([1.0, 0.5])), 100) == 100


def test_log_rank_by_hand():
    """Ours at 1, 3; theirs at 2, and one censored at 4.

    At 1: expected 2/4, variance 1/4. At 2: expected 1/3, variance 2/9. At 3: expected 1/2, variance
    1/4. Observed 2, expected 4/3, variance 13/18: (2/3)^2 / (13/18) = 8/13.
    """
    test = log_rank(group([1, 3]), group([2], [4]))
    assert test.statistic == pytest.approx(8 / 13)
    assert test.p == pytest.approx(stats.chi2.sf(8 / 13, 1))
    assert log_rank(group([2], [4]), group([1, 3])).statistic == pytest.approx(8 / 13)


def test_nothing_to_compare_gives_one():
    assert log_rank(group([], [9, 9]), group([], [9])) == (0.0, 1.0)
    assert log_rank(group([5, 5]), group([5])) == (0.0, 1.0)
    with pytest.raises(InputError, match="without runs"):
        log_rank(group([]), group([5]))
