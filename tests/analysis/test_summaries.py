"""Statistics of runs; of time to mastery also by hand: the rule, Kaplan-Meier, log-rank."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.report import summary
from analysis.statistics import intervals, mastery, matrices, primary, summaries
from analysis.statistics.intervals import METHODS, PERCENTILE, STUDENT_T, STUDENTISED
from analysis.statistics.mastery import kaplan_meier, log_rank
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import rows_where
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown
from tests.runs import refusal

PAIRWISE = ("improvement", "comparison", "comparison_steps")
# `phases` is empty where runs have one.
OF_ONE_ALGORITHM = [name for name in summaries.STATISTICS if name not in (*PAIRWISE, "phases")]
SPACE = synthetic.GOAL_SPACE
MAGELLAN, RANDOM = Algorithm("magellan", "default"), Algorithm("random", "default")


@pytest.mark.parametrize("seeds", [(0, 1), (1, 0)])
def test_rows_are_seeds_as_declared_and_columns_are_categories(runs, seeds):
    results = store.combine(runs, synthetic.experiment(seeds=seeds))
    curves = matrices.success_curves(results, MAGELLAN, SPACE, "unseen")
    assert curves.shape == (2, 4, 9)
    where = {"sampler": "magellan", "split": "unseen", "episode": 4_000}
    for seed, column, category in [(1, 0, "grasp"), (0, 2, "grow_herbivore")]:
        (row,) = results.table("evaluation", seed=seed, category=category, **where).itertuples()
        assert curves[seeds.index(seed), column, 4] == row.success


def test_success_rows_hold_mean_and_range_of_the_seeds(results, statistics):
    where = {"sampler": "online", "split": "train", "category": "grow_plant", "episode": 7_000}
    (row,) = rows_where(statistics["success"], **where).to_dict("records")
    values = results.table("evaluation", **where)["success"]
    assert row["mean"] == pytest.approx(values.mean())
    assert (row["lowest_seed"], row["highest_seed"]) == (values.min(), values.max())
    assert row["low"] <= row["mean"] <= row["high"]
    assert row["runs"] == 2


def test_scores_are_final_success_and_area(results, statistics):
    where = {"sampler": "ek_online", "split": "train", "category": "grow_plant", "seed": 1}
    curve = results.table("evaluation", **where).sort_values("episode")
    (row,) = rows_where(statistics["scores"], **where).to_dict("records")
    assert row["final"] == curve["success"].iloc[-1]
    heights = curve["success"].to_numpy()
    assert row["area"] == pytest.approx((heights[1:] + heights[:-1]).sum() / 2 / 8)


def test_every_interval_names_its_method(statistics):
    for name in ("success", "aggregates", "improvement", "profiles", "sample_efficiency"):
        frame = statistics[name]
        assert (frame["runs"] == 2).all()
        assert (frame["confidence"] == 0.95).all()
        assert set(frame["method"]) <= set(METHODS)
        resampled = frame["method"].isin([STUDENTISED, PERCENTILE])
        assert (frame["repetitions"] == resampled * 200).all()
    methods = statistics["aggregates"].set_index("statistic")["method"]
    assert set(methods["iqm"]) == {PERCENTILE}
    assert set(methods["mean"]) == {STUDENT_T}  # two runs


def test_improvement_is_of_the_last_sampler_over_each_other(results, statistics):
    frame = statistics["improvement"]
    assert list(frame["baseline"].unique()) == ["random", "online", "ek_online"]
    row = frame[(frame["baseline"] == "random") & (frame["split"] == "train")].set_index("score")
    magellan, random = (
        matrices.run_scores(results, algorithm, SPACE, "train", "final").to_numpy()
        for algorithm in (MAGELLAN, RANDOM)
    )
    (expected,) = matrices.probability_of_improvement(magellan, random)
    assert row.loc["final", "probability"] == pytest.approx(expected)
    assert expected > 0.5


def test_practice_counts_the_whole_run(results, statistics):
    where = {"sampler": "magellan", "seed": 0, "category": "grow_plant"}
    windows = results.table("practice", **where)
    (row,) = rows_where(statistics["practice"], **where).to_dict("records")
    assert row["episodes"] == windows["n"].sum()
    assert row["share"] == pytest.approx(windows["n"].sum() / 8_000)
    assert row["success"] == pytest.approx(windows["successes"].sum() / windows["n"].sum())


def test_calibration_is_of_each_run(statistics):
    frame = statistics["calibration"].set_index(["sampler", "split", "category", "seed"])
    row = frame.loc[("magellan", "unseen", "impossible", 1)]
    assert row["bias"] == pytest.approx(0.02)
    assert row["standard_error"] == 0
    assert row["points"] == 9
    assert ("random", "train", "grasp", 0) not in frame.index
    assert ("online", "unseen", "grasp", 0) in frame.index
    assert row["estimator"] == "learned"


def test_a_prediction_without_an_observation_is_refused(results):
    late = results.tables["competence"].replace({"episode": {8_000: 8_500}})
    assert "8500" in refusal(summaries.predictions, synthetic.with_tables(results, competence=late))


@pytest.mark.parametrize("name", OF_ONE_ALGORITHM)
def test_every_statistic_distinguishes_variants(varied_statistics, name):
    """Rows of each, of the same shape, with other numbers; a column `variant` after `sampler`."""
    frame = varied_statistics[name]
    columns = list(frame.columns)
    assert columns[columns.index("sampler") + 1] == "variant"
    assert set(frame[frame["sampler"] == "online"]["variant"]) == {"whole"}
    whole, small = (
        rows_where(frame, sampler="magellan", variant=variant) for variant in ("whole", "small")
    )
    assert len(whole) == len(small) > 0
    if name not in ("cost", "mastery"):  # nothing is mastered so early
        values = [column for column in columns if frame[column].dtype == float]
        assert not np.array_equal(whole[values].to_numpy(), small[values].to_numpy())


@pytest.mark.parametrize("name", PAIRWISE)
def test_comparisons_are_over_variants_as_well(varied_statistics, name):
    frame = varied_statistics[name]
    pairs = frame[["sampler", "variant", "baseline", "baseline_variant"]].drop_duplicates()
    assert list(pairs.itertuples(index=False, name=None)) == [
        ("magellan", "whole", "online", "whole"),
        ("magellan", "whole", "magellan", "small"),
    ]


def test_names_of_variants_and_their_order_survive_files(tmp_path):
    """Names that look like numbers, or like nothing; the first one is not first by the alphabet."""
    names = ["true", "1", "NA", "1e3", "None"]
    layers = {name: {"competence": {"buffer": 10 + at}} for at, name in enumerate(names)}
    results = synthetic.combined(
        tmp_path, ("magellan",), seeds=(0,), variants=layers, episodes=1_000
    )
    store.write(results, tmp_path / "tables")
    again = store.load(tmp_path / "tables")
    assert [algorithm.variant for algorithm in again.algorithms] == names
    assert again.reference == ("magellan", "true")
    computed = summaries.compute(again)
    summaries.write(computed, tmp_path / "statistics")
    loaded = summaries.load(tmp_path / "statistics")
    for name, frame in loaded.items():
        if len(frame):
            assert list(frame["variant"].unique()) == list(computed[name]["variant"].unique())
    assert set(loaded["improvement"]["baseline_variant"]) == set(names[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f[f["sampler"] != "magellan"], f"magellan default on {SPACE} is in one of the"),
        (lambda f: pd.concat([f, f.replace("magellan", "vds")]), f"vds default on {SPACE} is in"),
        (lambda f: f[["sampler", "seed"]], "lacks columns of goal_space, sampler, variant"),
    ],
)
def test_statistics_of_other_runs_are_refused(results, statistics, tmp_path, change, words):
    """Fewer samplers, more: one line before anything is drawn."""
    summaries.write({"cost": change(statistics["cost"])}, tmp_path)
    with pytest.raises(InputError, match=words):
        summaries.load(tmp_path, ("cost",), results)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder, layer = tmp_path_factory.mktemp("watched"), {"observers": ["learned"]}
    return synthetic.combined(
        folder, ("random", "ek_eval"), seeds=(0,), overrides=layer, episodes=2_000
    )


def test_calibration_is_of_each_estimator_on_the_same_goals(watched):
    frame = summaries.calibration(watched).set_index(["sampler", "estimator", "split", "category"])
    assert set(frame.index.droplevel(["split", "category"])) == {
        ("random", "learned"),
        ("ek_eval", "evaluated_buckets"),
        ("ek_eval", "learned"),
    }
    where = {"sampler": "ek_eval", "split": "unseen", "category": "grasp"}
    rows = rows_where(summaries.predictions(watched), **where)
    driver, watcher = (
        rows_where(rows, estimator=name) for name in ("evaluated_buckets", "learned")
    )
    assert driver["success"].tolist() == watcher["success"].tolist()
    assert driver["n"].tolist() == watcher["n"].tolist() == [64] * len(driver)


def test_episodes_for_estimating_are_those_of_the_driver(watched, results, statistics):
    cost = summaries.cost(watched).set_index("sampler")
    assert cost["estimation_episodes"].to_dict() == {"random": 0, "ek_eval": 200}
    table = summary.SummaryTables(watched, {"cost": cost.reset_index()}, SPACE).cost()
    assert synthetic.frame_of(table)[summary.ESTIMATING].tolist() == ["0", "200"]
    assert (
        summary.ESTIMATING not in summary.SummaryTables(results, statistics, SPACE).cost().columns
    )


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
    experiment = five.experiment | {"analysis": five.experiment["analysis"] | changes}
    frame = primary.comparison(synthetic.with_manifest(five, experiment=experiment))
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


def test_statistics_of_other_seeds_than_the_tables_are_refused(runs, statistics, tmp_path):
    """As after new seeds were combined, and statistics not computed again."""
    summaries.write(statistics, tmp_path)
    first = [run for run in runs if "seed0" in run.parts]
    fewer = store.combine(first, synthetic.experiment(seeds=(0,)))
    for name in ("comparison", "aggregates"):
        with pytest.raises(InputError, match="has 2 runs, in the tables 1; run"):
            summaries.load(tmp_path, [name], fewer)


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
