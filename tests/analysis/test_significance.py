"""Permutation tests and Holm's correction: by hand, and against scipy."""

import numpy as np
import pytest
from scipy import stats

from analysis.statistics import intervals
from analysis.statistics.intervals import holm, permutation_test, sign_flip_test

RNG = np.random.default_rng(5)


def test_permutation_test_by_hand():
    """Of the six splits of 1 2 | 3 4 two are as extreme: the observed one and its mirror."""
    test = permutation_test(np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    assert test == (2 / 6, "exact: all 6 splits of the runs")


def test_ties_count_as_at_least_as_far():
    test = permutation_test(np.array([0.1, 0.2]), np.array([0.1, 0.2, 0.1]))
    assert test.p == 1.0  # .15 against .133: no other split is nearer
    assert permutation_test(np.full(4, 0.3), np.full(4, 0.3)).p == 1.0


def test_many_runs_are_sampled_with_the_observed_split_among_them():
    ours, theirs = RNG.normal(0.5, 0.1, 20), RNG.normal(0.57, 0.1, 20)
    test = permutation_test(ours, theirs, seed=1)
    assert test.method.startswith("Monte Carlo: 99,999")
    assert test.p == pytest.approx(stats.ttest_ind(ours, theirs).pvalue, rel=0.15)
    assert test == permutation_test(ours, theirs, seed=1)
    assert test != permutation_test(ours, theirs, seed=2)
    assert permutation_test(np.zeros(20), np.ones(20)).p == 1 / 100_000


def welch(x, y, axis):
    return np.abs(stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic)


def test_runs_of_other_numbers_are_compared_by_welchs_t():
    rng = np.random.default_rng(6)
    ours, theirs = rng.normal(0.6, 0.3, 5), rng.normal(0.45, 0.05, 7)
    both = {"alternative": "greater", "n_resamples": np.inf}
    expected = stats.permutation_test((ours, theirs), welch, **both).pvalue
    assert permutation_test(ours, theirs).p == pytest.approx(expected)
    plain = stats.permutation_test(
        (ours, theirs), lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)), **both
    )
    assert plain.pvalue != pytest.approx(expected)


def test_the_level_is_kept_where_spread_and_number_differ(monkeypatch):
    """Ten runs of large spread, twenty of a small one: differences alone alarm in 19 of 100."""
    monkeypatch.setattr(intervals, "MOST_EXACT", 1)
    monkeypatch.setattr(intervals, "DRAWN", 999)
    rng = np.random.default_rng(11)
    experiments = [(rng.normal(0, 1, 10), rng.normal(0, 0.2, 20)) for _ in range(400)]

    def alarms():
        return np.mean([permutation_test(*pair).p <= 0.05 for pair in experiments])

    assert alarms() < 0.1
    monkeypatch.setattr(intervals, "_welch_t", intervals._difference)
    assert alarms() > 0.14


def test_sign_flip_test_by_hand_and_against_scipy():
    assert sign_flip_test(np.array([0.1, 0.2, 0.3])) == (2 / 8, "exact: all 8 signs of the pairs")
    pairs = RNG.normal(0.1, 0.2, 9)
    expected = stats.permutation_test(
        (pairs,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test(pairs).p == pytest.approx(expected.pvalue)


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.6])), [1.0, 1.0])
    np.testing.assert_allclose(holm(np.array([0.02, np.nan])), [0.02, np.nan])
    assert len(holm(np.array([]))) == 0
    assert holm(np.array([0.03]))[0] == 0.03
