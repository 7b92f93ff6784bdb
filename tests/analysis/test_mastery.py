"""Time to mastery: table and figure; by hand the rule, Kaplan-Meier and the log-rank test."""

import numpy as np
import pytest
from scipy import stats

from analysis.statistics import intervals, mastery
from analysis.statistics.mastery import kaplan_meier, log_rank
from analysis.tables.grid import Algorithm
from analysis.tables.results import rows_where
from tests.analysis import synthetic

SPACE = synthetic.GOAL_SPACE


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Runs long enough for some mastery and some censoring."""
    folder, samplers = tmp_path_factory.mktemp("long"), ("random", "online", "magellan")
    return synthetic.combined(folder, samplers, seeds=(1, 2, 3, 4), episodes=14_000)


@pytest.fixture(scope="module")
def frame(long):
    return mastery.mastery(long)


def test_rows_describe_the_times_of_runs(long, frame):
    assert len(frame) == 2 * 3 * 4
    assert list(frame.columns) == list(mastery.MASTERY_COLUMNS)
    row = rows_where(frame, sampler="magellan", split="train", category="grow_plant").iloc[0]
    runs = long.table("evaluation", sampler="magellan", split="train", category="grow_plant")
    times = []
    for _, run in runs.groupby("seed"):
        run = run.sort_values("episode")
        high = (run["success"] > 0.9).to_numpy()
        first = next((at for at in range(len(high) - 1) if high[at : at + 2].all()), -1)
        times.append(run["episode"].iloc[first])  # the last one if never: censored there
    assert row["restricted_mean"] == pytest.approx(np.mean(times))
    assert 0 <= row["low"] <= row["restricted_mean"] <= row["high"] <= 14_000
    assert row["mastered"] == row["runs"] == 4
    assert row["limit"] == 14_000
    never = rows_where(frame, sampler="random", category="grow_carnivore").iloc[0]
    assert (never["mastered"], never["restricted_mean"]) == (0, 14_000)
    assert np.isnan(never["median"])


def test_the_reference_is_tested_against_each_other(long, frame):
    assert frame[frame["sampler"] == "magellan"][["log_rank", "p", "p_holm"]].isna().all(axis=None)
    for _, family in frame.groupby(mastery.FAMILY):
        np.testing.assert_allclose(family["p_holm"], intervals.holm(family["p"].to_numpy()))
    row = rows_where(frame, sampler="random", split="train", category="grow_plant").iloc[0]
    magellan, random = (
        mastery.times_of(long, Algorithm(name, "default"), SPACE, "train")["grow_plant"]
        for name in ("magellan", "random")
    )
    assert row["p"] == pytest.approx(log_rank(magellan, random).p)
    assert row["p"] < 0.05


def group(times, censored=()):
    """Runs that mastered at `times`, and others that were watched until `censored`."""
    both = np.array([*times, *censored], dtype=float)
    return both, np.arange(len(both)) < len(times)


@pytest.mark.parametrize(
    ("curve", "time", "mastered"),
    [
        ([1.0], 0, False),  # a single evaluation
        ([0.0, 0.95, 0.92, 0.1], 100, True),  # stays above at two in a row: the first of them
        ([0.0, 0.95, 0.1, 0.95], 300, False),  # never two in a row; nothing confirms the last
        ([0.0, 0.9, 0.9, 0.9], 300, False),  # above, not equal
    ],
)
def test_the_rule_of_mastery(curve, time, mastered):
    times, masters = mastery.mastery_times(np.array([curve]), 100 * np.arange(len(curve)))
    assert (times[0], masters[0]) == (time, mastered)


def test_kaplan_meier_by_hand():
    """Runs end at 1, 2, 2 (censored), 3, 5 (censored): 4/5, then 4/5 * 3/4, then * 1/2."""
    times = np.array([1.0, 2.0, 2.0, 3.0, 5.0])
    steps = kaplan_meier(times, np.array([True, True, False, True, False]))
    np.testing.assert_allclose(steps.times, [0, 1, 2, 3])
    np.testing.assert_allclose(steps.shares, [1, 0.8, 0.6, 0.3])
    assert mastery.median_time(steps) == 3


@pytest.mark.parametrize("runs", [2, 10, 24])
def test_the_median_is_when_half_of_the_runs_have_mastered(runs):
    """By any number of runs: shares are products, and may be 0.5 but for the last bit."""
    steps = kaplan_meier(*group(range(1, runs + 1)))
    assert mastery.median_time(steps) == runs // 2


def test_log_rank_by_hand():
    """The first group at 1, 3; the second at 2, and one censored at 4.

    At 1: expected 2/4, variance 1/4. At 2: expected 1/3, variance 2/9. At 3: expected 1/2, variance
    1/4. Observed 2, expected 4/3, variance 13/18: (2/3)^2 / (13/18) = 8/13.
    """
    test = log_rank(group([1, 3]), group([2], [4]))
    assert test.statistic == pytest.approx(8 / 13)
    assert test.p == pytest.approx(stats.chi2.sf(8 / 13, 1))
    assert log_rank(group([2], [4]), group([1, 3])).statistic == pytest.approx(8 / 13)
    # Of equal groups p is 1.
    assert log_rank(group([], [9, 9]), group([], [9])) == (0.0, 1.0)
    assert log_rank(group([5, 5]), group([5])) == (0.0, 1.0)
