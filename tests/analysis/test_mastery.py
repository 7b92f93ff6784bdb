"""The table and the figure of time to mastery: rows, tests, lines."""

import numpy as np
import pytest

from analysis import figures
from analysis.figures import style
from analysis.report import summary
from analysis.statistics import intervals, mastery
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
    assert row["p"] == pytest.approx(mastery.log_rank(magellan, random).p)
    assert row["p"] < 0.05


def test_lines_rise_to_the_share_of_runs_that_master(long, frame):
    figure = figures.draw("mastery", long, {}, SPACE)
    for column, category in enumerate(synthetic.FEASIBLE):
        row = rows_where(frame, sampler="online", split="unseen", category=category).iloc[0]
        color = style.LOOKS["sampler"]["online"].color
        panel = figure.axes[4 + column]
        (line,) = [line for line in panel.get_lines() if line.get_color() == color]
        assert line.get_ydata()[-1] == pytest.approx(row["mastered"] / row["runs"])
        assert line.get_xdata()[-1] == 14_000
        assert (np.diff(line.get_ydata()) >= 0).all()


def test_readers_see_how_many_runs_master(long, frame):
    table = summary.mastery_table(long, {"mastery": frame}, SPACE, "train").set_index("Sampler")
    row = rows_where(frame, sampler="magellan", split="train", category="grow_plant").iloc[0]
    assert table.loc["MAGELLAN", "Grow plant"] == f"4 of 4 ({row['restricted_mean']:,.0f})"
