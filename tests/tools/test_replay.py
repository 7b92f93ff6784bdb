"""A replay of a run's outcomes gives the predictions of an observer of that run."""

import json
import re
import shutil
from collections import Counter
from functools import cache

import numpy as np
import pandas as pd
import pytest

from magellan.cli import main
from magellan.core.columns import COLUMNS
from magellan.tools.replay import RecordedRun, lag
from tests import runs
from tests.runs import error_line, forge, printed, rows, trained

KEEP = {"budget": {"record_outcomes": True, "record_goals": True, "episodes": 100}}
STEPS = {"record_outcomes": True, "steps": 700, "evaluate_every": 300}


def config(sampler, observers=(), **layer):
    return runs.config(sampler, observers=list(observers), **{**KEEP, **layer})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Folder of a run with recorded outcomes, by its name in RUNS."""
    return cache(lambda name: trained(RUNS[name], tmp_path_factory.mktemp(name)))


RUNS = {
    "driver": config("magellan", competence={"pool": 16}),
    "observer": config("random", ["learned", "per_goal", "expert_buckets"]),
    "all": config("random", ["per_goal"], goal_space="all"),
    "steps": config("random", budget=STEPS),
    "no outcomes": config("random", budget={}),
    "phases": config("random", phases=[{"until": 60}, {"seed": 4}]),
}


def replayed(run, output, *options):
    return main(["replay", str(run), "--output", str(output), *options])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "estimator"), [("driver", "learned"), ("observer", "learned"), ("all", "per_goal")]
)
def test_unchanged_constants_give_the_predictions_of_the_run(run, estimator, recorded, tmp_path):
    folder = recorded(run)
    assert replayed(folder, tmp_path / "out", "--estimator", estimator) == 0
    for table in ("competence", "goals"):
        own = [row for row in rows(folder, table) if row["estimator"] == estimator]
        assert rows(tmp_path / "out", table) == own
        assert len(own) >= 30


OTHERS = [("competence", "learning_rate", 1e-2), ("backbone", "model", "zoo-reader")]


@pytest.mark.parametrize("other", OTHERS)
def test_another_constant_or_model_changes_the_predictions_only(other, recorded, tmp_path):
    folder, (section, key, value) = recorded("driver"), other
    words = ("--estimator", "learned", "--set", f"{section}.{key}={value}")
    assert replayed(folder, tmp_path / "out", *words) == 0
    before, after = rows(folder, "goals"), rows(tmp_path / "out", "goals")
    predicted = ("competence", "delayed_competence")
    assert [r["competence"] for r in before] != [r["competence"] for r in after]
    for row, replay in zip(before, after, strict=True):
        assert all(row[name] == replay[name] for name in row if name not in predicted)
    description = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert description["settings"][section][key] == value
    assert description["replayed"] == json.loads((folder / "manifest.json").read_text())["identity"]


def test_more_points_leave_the_others_as_they_are(recorded, tmp_path):
    folder = recorded("observer")
    assert replayed(folder, tmp_path / "out", "--estimator", "learned", "--every", "4") == 0
    table, own = rows(tmp_path / "out", "competence"), rows(folder, "competence")
    recorded_rows = [row for row in own if row["estimator"] == "learned"]
    assert [row for row in table if row in recorded_rows] == recorded_rows
    updates = json.loads((folder / "manifest.json").read_text())["updates"]
    assert {int(row["update"]) for row in table} >= set(range(0, updates + 1, 4))


def test_errors_are_those_of_the_tables(recorded, tmp_path):
    folder = recorded("observer")
    assert replayed(folder, tmp_path / "out", "--estimator", "expert_buckets") == 0
    names, keys = ("goals", "competence"), ["episode", "split", "category"]
    goals, predicted = (pd.read_csv(tmp_path / f"out/{name}.csv") for name in names)
    observed = predicted[keys].merge(pd.read_csv(folder / "evaluation.csv"), "left", keys)
    predicted["error"] = (predicted["competence"] - observed["success"].fillna(0.0)).abs()
    goals["error"] = (goals["competence"] - goals["success"]) ** 2
    errors = rows(tmp_path / "out", "error")
    assert len(errors) == 12
    for row in errors:
        assert row["unit"] == "episodes"
        for table, column in ((predicted, "mean_absolute_error"), (goals, "brier")):
            of_split = table[table["split"] == row["split"]]
            chosen = (of_split["category"] == row["category"]) | (row["category"] == "all")
            assert float(row[column]) == printed(of_split["error"][chosen].mean(), 5, 2)


def test_errors_are_in_the_unit_of_the_budget(recorded, tmp_path):
    assert replayed(recorded("steps"), tmp_path / "out", "--estimator", "per_goal") == 0
    errors = rows(tmp_path / "out", "error")
    assert {(row["unit"], row["brier"]) for row in errors} == {("steps", "")}
    assert all(int(row["lag"]) % 300 == 0 for row in errors)


def test_every_episode_is_recorded_once_and_in_order(recorded):
    folder = recorded("driver")
    table = rows(folder, "outcomes")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert tuple(table[0]) == COLUMNS["outcomes"]
    assert len(table) == manifest["episodes"] >= 100
    updates = [int(row["update"]) for row in table]
    assert updates == sorted(updates)
    assert max(updates) <= manifest["updates"]
    # The first 100 are those that practice.csv counts.
    played = Counter((row["category"], row["success"]) for row in table[:100])
    for row in rows(folder, "practice"):
        played[row["category"], "1"] -= int(row["successes"])
        played[row["category"], "0"] -= int(row["n"]) - int(row["successes"])
    assert not any(played.values())
    run = RecordedRun.read(folder)
    assert sum(len(run.received(u)) for u in range(manifest["updates"] + 1)) == len(table)


def forged(where, value):
    """The last checkpoint has another value, and a right checksum."""
    return lambda run: forge(max((run / "checkpoints").iterdir()), f"trainer/{where}", value)


UNKNOWN = forged("record/outcomes", lambda old: old + 999)
OTHER = ("--set", "agent.gamma=0.5")
MODEL = ("--estimator", "per_goal", "--set", "backbone.model=zoo-reader")
REFUSED = [
    ("observer", None, ("--estimator", "evaluated_goals"), "--estimator: .* played by the agent"),
    ("observer", None, OTHER, "--set.*'agent'.*competence.key.*backbone.model"),
    ("observer", None, MODEL, "--set.*'backbone'"),
    ("observer", forged("next_evaluation", 90), (), "is not the end of the run"),
    ("observer", UNKNOWN, (), "does not fit this ver"),
    ("no outcomes", None, (), "record_outcomes: true"),
    ("phases", None, (), "allowed: runs of one phase"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change", "more", "words"), REFUSED)
def test_what_cannot_be_replayed_is_one_line(name, change, more, words, recorded, tmp_path, capsys):
    run = shutil.copytree(recorded(name), tmp_path / "run")
    if change:
        change(run)
    assert replayed(run, tmp_path / "out", "--estimator", "learned", *more) == 2
    assert re.search(words, error_line(capsys))
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_left_alone(recorded, tmp_path, capsys):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "replay.json").write_text("{}")
    assert replayed(recorded("observer"), tmp_path / "used", "--estimator", "per_goal") == 2
    assert "--output" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["replay.json"]
    below_a_file = tmp_path / "used" / "replay.json" / "out"
    assert replayed(recorded("observer"), below_a_file, "--estimator", "evaluated_goals") == 2
    assert "out cannot be written; allowed: a folder" in error_line(capsys)


def test_lag_by_hand():
    observed = np.array([0.0, 0.1, 0.5, 0.9, 1.0, 1.0])
    late = np.array([0.0, 0.0, 0.0, 0.1, 0.5, 0.9])
    assert lag([(late, observed)]) == lag([(late, np.zeros(6)), (late, observed)]) == 2
    for pairs in ([(observed, observed)], [(late, np.zeros(6))], []):
        assert lag(pairs) == 0
