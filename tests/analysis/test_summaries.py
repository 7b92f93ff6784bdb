import numpy as np
import pytest

from analysis import summaries, summary, tables
from magellan.errors import InputError
from tests.analysis import synthetic


def cell(results, **where):
    frame = results.table("evaluation", **where)
    assert len(frame) == 1
    return frame["success"].iloc[0]


def test_rows_are_seeds_and_columns_are_categories(results):
    curves = summaries.success_curves(results, "magellan", synthetic.GOAL_SPACE, "unseen")
    assert curves.shape == (2, 4, 9)
    for (row, seed), (column, category) in [
        ((1, 1), (0, "grasp")),
        ((0, 0), (2, "grow_herbivore")),
    ]:
        expected = cell(
            results,
            sampler="magellan",
            seed=seed,
            split="unseen",
            category=category,
            episode=4_000,
        )
        assert curves[row, column, 4] == expected


def test_seeds_keep_the_order_of_the_configuration(runs):
    declared = synthetic.experiment(seeds=(1, 0))
    turned = tables.combine(runs, declared)
    curves = summaries.success_curves(turned, "random", synthetic.GOAL_SPACE, "train")
    expected = cell(
        turned, sampler="random", seed=1, split="train", category="grow_plant", episode=8_000
    )
    assert curves[0, 1, -1] == expected


def test_success_rows_hold_mean_and_range_of_the_seeds(results, statistics):
    frame = statistics["success"].set_index(["sampler", "split", "category", "episode"])
    row = frame.loc[("online", "train", "grow_plant", 7_000)]
    values = results.table(
        "evaluation", sampler="online", split="train", category="grow_plant", episode=7_000
    )["success"]
    assert row["mean"] == pytest.approx(values.mean())
    assert (row["lowest_seed"], row["highest_seed"]) == (values.min(), values.max())
    assert row["low"] <= row["mean"] <= row["high"]
    assert row["runs"] == 2


def test_scores_are_final_success_and_area(results, statistics):
    frame = statistics["scores"].set_index(["sampler", "split", "category", "seed"])
    curve = results.table(
        "evaluation", sampler="ek_online", split="train", category="grow_plant", seed=1
    ).sort_values("episode")
    row = frame.loc[("ek_online", "train", "grow_plant", 1)]
    assert row["final"] == curve["success"].iloc[-1]
    heights = curve["success"].to_numpy()
    assert row["area"] == pytest.approx((heights[1:] + heights[:-1]).sum() / 2 / 8)


def test_every_interval_says_how_it_was_made(statistics):
    for name in ("success", "aggregates", "improvement", "profiles", "sample_efficiency"):
        frame = statistics[name]
        assert (frame["runs"] == 2).all()
        assert (frame["repetitions"] == 200).all()
        assert (frame["confidence"] == 0.95).all()
        assert frame["method"].str.contains("bootstrap over seeds").all()


def test_improvement_is_of_magellan_over_each_baseline(results, statistics):
    frame = statistics["improvement"]
    assert list(frame["baseline"].unique()) == ["random", "online", "ek_online"]
    row = frame[(frame["baseline"] == "random") & (frame["split"] == "train")].set_index("score")
    ours = summaries.score_matrices(results, "magellan", synthetic.GOAL_SPACE, "train")["final"]
    theirs = summaries.score_matrices(results, "random", synthetic.GOAL_SPACE, "train")["final"]
    wins = [
        np.mean([(x > y) + 0.5 * (x == y) for x in ours[:, task] for y in theirs[:, task]])
        for task in range(4)
    ]
    assert row.loc["final", "probability"] == pytest.approx(np.mean(wins))
    assert row.loc["final", "probability"] > 0.5


def test_without_magellan_there_is_no_improvement_to_speak_of(runs):
    declared = synthetic.experiment(samplers=("random", "online"))
    frame = summaries.improvement(tables.combine(runs[:4], declared))
    assert frame.empty
    assert "probability" in frame.columns


def test_practice_counts_the_whole_run(results, statistics):
    frame = statistics["practice"].set_index(["sampler", "seed", "category"])
    rows = results.table("practice", sampler="magellan", seed=0, category="grow_plant")
    found = frame.loc[("magellan", 0, "grow_plant")]
    assert found["episodes"] == rows["n"].sum()
    assert found["share"] == pytest.approx(rows["n"].sum() / 8_000)
    assert found["success"] == pytest.approx(rows["successes"].sum() / rows["n"].sum())


def test_observed_success_on_impossible_goals_is_zero(results):
    frame = summaries.predictions(results)
    impossible = frame[frame["category"] == "impossible"]
    assert len(impossible)
    assert (impossible["success"] == 0).all()
    assert (frame[frame["category"] == "grasp"]["success"] > 0).any()


def test_calibration_is_of_each_run(results, statistics):
    frame = statistics["calibration"].set_index(["sampler", "split", "category", "seed"])
    row = frame.loc[("magellan", "unseen", "impossible", 1)]
    assert row["bias"] == pytest.approx(0.02)
    assert row["standard_error"] == 0
    assert row["points"] == 9
    assert ("random", "train", "grasp", 0) not in frame.index
    assert ("online", "unseen", "grasp", 0) not in frame.index


def test_a_prediction_without_an_observation_is_refused(results):
    late = results.tables["competence"].replace({"episode": {8_000: 8_500}})
    odd = tables.Results({**results.tables, "competence": late}, results.manifest)
    with pytest.raises(InputError, match="8500"):
        summaries.predictions(odd)


def test_two_reports_from_the_same_tables_are_equal(results, statistics, tmp_path):
    for name in ("first", "second"):
        summaries.write(summaries.compute(results), tmp_path / name)
    first = sorted((tmp_path / "first").iterdir())
    assert {path.stem for path in first} == set(summaries.STATISTICS)
    for path in first:
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_the_readable_table_has_mean_and_range(results, statistics):
    table = summary.success_table(results, statistics, synthetic.GOAL_SPACE, "train")
    scores = statistics["scores"]
    mine = scores[
        (scores["sampler"] == "online")
        & (scores["split"] == "train")
        & (scores["category"] == "grow_plant")
    ]["final"]
    expected = f"{mine.mean():.2f} ({mine.min():.2f}-{mine.max():.2f})"
    assert table.set_index("Sampler").loc["Online-ALP", "Grow plant"] == expected
    text = summary.to_markdown(results, statistics)
    assert expected in text
    assert "n = 2 seeds" in text
