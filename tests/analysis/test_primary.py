"""The pre-registered comparison: what is compared, and what the tables say of it."""

import numpy as np
import pytest

from analysis.report import summary
from analysis.statistics import intervals, primary, summaries
from analysis.tables import store
from analysis.tables.results import rows_where
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown

SPACE = synthetic.GOAL_SPACE


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    folder, samplers = tmp_path_factory.mktemp("five"), ("random", "online", "magellan")
    return synthetic.combined(folder, samplers, seeds=(1, 2, 3, 4, 5), episodes=6_000)


def means(results, sampler, split="train"):
    scores = rows_where(summaries.scores(results), sampler=sampler, split=split)
    return scores.groupby("seed")["area"].mean().to_numpy()


def test_the_primary_metric_is_mean_success_over_training_on_training_goals(five):
    frame = primary.comparison(five)
    assert len(frame) == 2 * 2 * 2
    rows = frame[frame["primary"]]
    assert set(rows["split"]) == {"train"}
    assert set(rows["score"]) == {"area"}
    assert list(rows["baseline"]) == ["random", "online"]
    first, second = means(five, "magellan"), means(five, "online")
    row = rows.iloc[1]
    assert row["difference"] == pytest.approx(first.mean() - second.mean())
    assert (row["runs"], row["baseline_runs"], row["tasks"]) == (5, 5, 4)
    tested = intervals.permutation_test(first, second)
    np.testing.assert_allclose(row[["low", "high", "p"]].astype(float), tested[1:4])
    assert row["test"] == "exact: all 252 splits of the runs"
    assert row["p_paired"] == pytest.approx(intervals.sign_flip_test(first - second).p)
    assert row["method"] == intervals.INVERTED


@pytest.mark.parametrize(
    ("changes", "keys", "tests"),
    [({}, ["split", "score"], 2), ({"family": "question"}, ["score"], 2 * 2)],
)
def test_p_is_corrected_over_the_baselines_of_a_score(five, changes, keys, tests):
    frame = primary.comparison(synthetic.with_analysis(five, **changes))
    for _, family in frame.groupby(keys):
        assert len(family) == tests
        np.testing.assert_allclose(family["p_holm"], intervals.holm(family["p"].to_numpy()))
        assert family["p_holm"].min() == pytest.approx(tests * family["p"].min())


def test_other_seeds_are_not_paired(runs, tmp_path):
    # `random` has one seed.
    partial = store.combine(runs[1:], synthetic.experiment(), incomplete=tmp_path)
    frame = primary.comparison(partial).set_index(["baseline", "split", "score"])
    row = frame.loc[("random", "train", "area")]
    assert np.isnan([row["p_paired"], row["low"], row["high"]]).all()
    assert (row["runs"], row["baseline_runs"]) == (2, 1)
    assert row["method"] == intervals.TOO_FEW
    assert frame.loc[("online", "train", "area"), "p_paired"] > 0
    text = to_markdown(summary, partial, summaries.compute(partial))
    assert "| 2 and 1 |" in text
    assert "| n/a |" in text
