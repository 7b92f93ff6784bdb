"""The simulated learner along axes of difficulty, and the tables and the page made of it."""

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.report import leaderboard
from analysis.statistics.standing import standings
from analysis.studies import axes as study
from analysis.tables.printing import chance, render
from magellan.tools import axes
from tests import pages
from tests.pages import REFERENCE, between_markers, frontier_tests, page
from tests.runs import refusal, refuses


def test_the_learner_is_what_the_protocol_says():
    setting = replace(axes.BASE, noise=0.2, jump=0.5)
    goals = axes.goals_of(setting)
    assert goals.sizes.tolist() == [8000, 1604, 320, 64, 12]
    learner = axes.Learner(goals, setting, np.random.default_rng(0))
    first = goals.nth(1, np.arange(69))
    learner.practise(first[:68])
    assert learner.competence[0] == 0.0  # .99 ** 68 is above .5
    outcomes = learner.practise(first[68:])
    assert learner.competence[0] == pytest.approx(1 - 0.99**69)
    assert outcomes.advantage.shape == (1,)
    learner.practise(goals.nth(2, np.arange(10)))
    assert learner.skills[1] == pytest.approx(1 - (1 - 0.01 * (1 - 0.99**69)) ** 10)
    played = learner.play(np.zeros(20_000, np.int64), np.random.default_rng(1))
    assert played.mean() == pytest.approx(0.2, abs=0.01)  # false successes of impossible goals


def test_features_tell_the_category_of_three_goals_in_four():
    goals = axes.goals_of(replace(axes.BASE, impossible=0.2))
    where = np.concatenate([goals.nth(category, np.arange(60)) for category in range(4)])
    vectors = axes.features(goals, seed=3)([str(goal) for goal in where])
    right = vectors[:, :5].argmax(axis=1) == goals.categories_at(where)
    assert 0.65 < right.mean() < 0.85
    assert len({vector.tobytes() for vector in vectors}) == len(where)


@pytest.mark.parametrize("name", axes.READ_ALL)
def test_a_sampler_that_reads_all_goals_runs_with_more_than_the_pool(name, monkeypatch):
    monkeypatch.setattr(axes, "UPDATES", 12)
    pool = axes.CONSTANTS["competence"]["pool"]
    setting = replace(axes.BASE, goals=pool + 1_000)
    assert np.isfinite(axes.run(name, setting, 1)[0])
    assert np.isnan(axes.run(name, replace(setting, goals=axes.MOST + 1), 1)[0])


def test_the_order_that_is_known():
    areas = {name: axes.run(name, axes.BASE, 101)[0] for name in ("random", "ek_online", "oracle")}
    assert areas["random"] < 0.3 < 0.6 < areas["ek_online"] < areas["oracle"]
    harder = axes.run("random", replace(axes.BASE, impossible=0.95), 101)[0]
    assert harder < areas["random"]
    assert axes.run("random", axes.BASE, 101)[0] == areas["random"]


def test_a_table_goes_on_and_gives_up(tmp_path, monkeypatch):
    monkeypatch.setattr(axes, "AXES", {"noise": (0.0, 0.2)})
    monkeypatch.setattr(axes, "UPDATES", 6)
    path = tmp_path / "axes.csv"
    axes.table(["random"], 2, path, print)
    before = path.read_text().splitlines()
    runs = [f"{value},{seed}" for value in ("base,0", "noise,0.2") for seed in (1, 2)]
    assert [line.split(",")[:5] for line in before[1:]] == [
        ["random", "same information", *run.split(",")] for run in runs
    ]
    monkeypatch.setattr(axes, "LIMIT", -1.0)  # a coarse clock may stand still
    axes.table(["random", "ek_eval", "oracle"], 2, path, print)
    after = list(csv.reader(path.open()))
    assert [",".join(row) for row in after[:5]] == before
    given_up = [row for row in after if row[0] == "ek_eval"]
    assert [row[4:7] for row in given_up] == [["1", "", ""]] * 2
    path.write_text("a,b\n1,2\n")
    for make, output, words in (
        (axes.table, path, "allowed: a new file, or such a table"),
        (axes.table, path.with_suffix(".json"), "axes.json' is not allowed; allowed: another"),
        (axes.starvation, path, "axes.csv is not a table with the columns sampler, s"),
    ):
        assert words in refusal(make, ["random"], 1, output, print)
    assert path.read_text() == "a,b\n1,2\n"
    path.unlink()
    axes.starvation(["random"], 1, path, print)
    first = path.read_text()
    axes.starvation(["informative"], 1, path, print)
    assert path.read_text().startswith(first)


def test_standings_by_hand():
    """Ten pairs that agree: p = 2 / 2**10, times two rules of the track."""
    floor = pd.Series(np.linspace(0.1, 0.2, 10))
    scores = {"floor": floor, "a": floor + 0.3, "b": floor + 0.3, "top": 0 * floor + 0.9}
    tracks = {"floor": "same", "a": "same", "b": "same"}
    rows = {row.rule: row for row in standings(scores, tracks, "floor", "top")}
    assert set(rows) == {"floor", "a", "b"}
    assert rows["a"].p_floor == pytest.approx(2 * 2 / 2**10)
    assert rows["a"].gain.value == pytest.approx(0.3)
    assert rows["a"].regret.value == pytest.approx(0.45)
    assert np.isnan(rows["a"].p_best) != np.isnan(rows["b"].p_best)
    assert np.fmax(rows["a"].p_best, rows["b"].p_best) == 1.0  # the other's; equal rules
    assert (rows["a"].verdict, rows["floor"].verdict) == ("ahead", "equal")
    for one, other in ((floor[:1], floor[:1]), (floor[:9], floor[1:])):
        refuses("the same two or more", standings, {"floor": one, "a": other}, tracks, "floor")


@pytest.mark.slow
def test_the_pages_are_those_of_the_tables():
    table = study.load(REFERENCE / "axes" / "axes.csv")
    assert between_markers("axes", page("axes")) == render(study.tables(table)[:1]).strip()
    rows = leaderboard.rows(REFERENCE)
    assert between_markers("leaderboard", page("leaderboard")) == leaderboard.page(rows).strip()
    protocol = frontier_tests().splitlines()
    for rule, p in leaderboard.PROTOCOLS.items():
        [cells] = [line.split(" | ") for line in protocol if f" | `{rule}` | " in line]
        assert cells[4] == chance(p)
    success = {standing.rule: standing.success.value for standing, _ in rows}
    for variant in ("scripted", "smollm2"):
        own = pages.success("experimenter", "experimenter", variant).mean()
        assert np.isclose(success[f"experimenter/{variant}"], own)
    with (REFERENCE / "leaderboard.csv").open() as file:
        header, *lines = csv.reader(file)
    assert header == list(leaderboard.COLUMNS)
    assert lines == [leaderboard.cells(row) for row in rows]
    for line in lines:
        row = dict(zip(header, line, strict=True))
        assert int(row["n"]) > 1
        assert float(row["success_low"]) <= float(row["success"]) <= float(row["success_high"])
    assert json.loads((REFERENCE / "axes" / "axes.json").read_text())["batch"] == axes.BATCH


@pytest.mark.parametrize(
    ("name", "comes_back"), [("random", True), ("informative", True), ("adarft", False)]
)
def test_a_group_that_cannot_be_solved_at_first_is_starved_or_not(name, comes_back):
    before, after, end = axes.starved(name, 1)
    assert (end >= 0.125) == comes_back
    assert max(before, after, end) <= 1.0
