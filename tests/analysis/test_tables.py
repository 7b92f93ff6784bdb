import json
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.tables import store
from magellan.core.errors import InputError
from tests.analysis import synthetic

SPACE = synthetic.GOAL_SPACE
GRID = [(sampler, "default", SPACE, seed) for sampler in synthetic.SAMPLERS for seed in (0, 1)]
NAMES = ["sampler", "variant", "goal_space", "seed"]


@pytest.fixture
def folder(results, tmp_path):
    """A tables folder that a test may spoil."""
    store.write(results, tmp_path / "tables")
    return tmp_path / "tables"


def edit(path, change):
    """Let `change` alter a CSV in place."""
    frame = pd.read_csv(path, dtype={"goal_space": str, "variant": str})
    change(frame).to_csv(path, index=False)


def edit_json(path, change):
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def refusal(folder):
    """The one line with which a tables folder is refused."""
    with pytest.raises(InputError) as error:
        store.load(folder)
    text = str(error.value)
    assert "\n" not in text
    return text


def rows(frame, **where):
    chosen = np.ones(len(frame), dtype=bool)
    for column, value in where.items():
        chosen &= (frame[column] == value).to_numpy()
    return chosen


def test_combine_keeps_every_row_and_number_in_the_order_of_the_grid(runs, results):
    shuffled = store.combine(runs[::-1], synthetic.experiment())
    for name, spec in store.TABLES.items():
        frame = results.tables[name]
        pd.testing.assert_frame_equal(frame, shuffled.tables[name])
        assert tuple(frame.columns) == (*NAMES, *spec.columns)
        parts = [pd.read_csv(run / f"{name}.csv", float_precision="round_trip") for run in runs]
        whole = pd.concat([part for part in parts if len(part)], ignore_index=True)
        pd.testing.assert_frame_equal(frame.iloc[:, 4:], whole)
    found = results.tables["evaluation"][NAMES].drop_duplicates()
    assert list(found.itertuples(index=False, name=None)) == GRID
    assert [(run["sampler"], run["seed"]) for run in results.manifest["runs"]] == [
        (sampler, seed) for sampler, _, _, seed in GRID
    ]


def test_written_tables_come_back_equal_and_do_not_name_their_place(results, folder):
    again = store.load(folder)
    for name in store.TABLES:
        pd.testing.assert_frame_equal(results.tables[name], again.tables[name])
    assert again.manifest == results.manifest
    assert "results" not in again.experiment
    assert again.experiment["seeds"] == [0, 1]


def test_a_sampler_without_an_estimator_has_no_competence_rows(results):
    assert set(results.tables["competence"]["sampler"]) == {"online", "ek_online", "magellan"}


def drop(table, **where):
    def spoil(folder):
        edit(folder / f"{table}.csv", lambda frame: frame[~rows(frame, **where)])

    return spoil


def put(table, column, value, **where):
    def spoil(folder):
        def change(frame):
            frame[column] = frame[column].astype(object)
            frame.loc[rows(frame, **where), column] = value
            return frame

        edit(folder / f"{table}.csv", change)

    return spoil


def in_manifest(change):
    return lambda folder: edit_json(folder / "manifest.json", change)


def drop_run(folder):
    edit_json(folder / "manifest.json", lambda manifest: manifest["runs"].pop(5))


def add_seed(manifest):
    manifest["experiment"]["seeds"].append(7)


def another_length(manifest):
    manifest["runs"][3]["config"]["budget"]["episodes"] = 9


def another_default(manifest):
    """A key that does not stand among the counted ones, because it has its default."""
    manifest["runs"][3]["config"]["agent"]["gamma"] = 0.5


def twice(folder):
    edit(folder / "practice.csv", lambda frame: pd.concat([frame, frame.iloc[[3]]]))


def without_column(folder):
    edit(folder / "evaluation.csv", lambda frame: frame.drop(columns="n"))


POINT = {"episode": 3_000, "split": "unseen", "category": "grow_plant"}
RUN = {"sampler": "online", "seed": 1}
SPOILED = {
    "missing seed": (drop("evaluation", **RUN), ("evaluation.csv", "'online'", "seed 1")),
    "missing practice": (drop("practice", **RUN), ("practice.csv", "'online'", "seed 1")),
    "missing sampler": (drop("evaluation", sampler="random"), ("'random'", "seed 0")),
    "missing run in manifest": (drop_run, ("manifest.json", "'ek_online'", "seed 1")),
    "declared seed not there": (in_manifest(add_seed), ("'random'", "seed 7")),
    "undeclared sampler": (
        put("evaluation", "sampler", "other", **RUN, episode=0),
        ("evaluation.csv", "undeclared", "'other'"),
    ),
    "missing point": (drop("evaluation", **RUN, episode=3_000), ("episode 3000", "'online'")),
    "missing competence of a seed": (
        drop("competence", **RUN),
        ("competence.csv", "estimators are []", "'online'", "seed 1", "['per_goal']"),
    ),
    "another estimator": (
        put("competence", "estimator", "learned", **RUN),
        ("estimators are ['learned']", "'online'", "seed 1"),
    ),
    "missing training of a seed": (
        drop("training", **RUN),
        ("training.csv", "0 rows", "'online'", "seed 1", "160"),
    ),
    "missing row of training": (
        drop("training", **RUN, update=800),
        ("training.csv", "159 rows", "'online'", "seed 1", "160"),
    ),
    "predictions of other goals": (
        put("competence", "n", 63, sampler="online", **POINT),
        ("competence.csv", "n 63", "predicted but not played", "'online'"),
    ),
    "predictions of one split": (
        drop("competence", sampler="online", split="unseen"),
        ("competence.csv", "unseen", "played but not predicted", "'online'"),
    ),
    "success that n episodes cannot give": (
        put("evaluation", "success", 0.333, **RUN, **POINT),
        ("evaluation.csv", "success is 0.333", "multiple of 1/n"),
    ),
    "no episodes": (put("evaluation", "n", 0, **POINT), ("n is 0", "1 or more")),
    "impossible goal reached": (
        put("practice", "successes", 1, category="impossible", episode=500, **RUN),
        ("practice.csv", "successes is 1", "0 for an impossible goal"),
    ),
    "negative loss": (
        put("training", "critic_loss", -0.5, **RUN, update=800),
        ("training.csv", "critic_loss is -0.5", "0 or more"),
    ),
    "infinite entropy": (
        put("training", "entropy", "inf", **RUN, update=800),
        ("training.csv", "entropy is inf", "finite"),
    ),
    "NaN temperature": (
        put("training", "temperature", "nan", **RUN, update=800),
        ("training.csv", "no value in column temperature"),
    ),
    "missing category at one point of one run": (
        drop("evaluation", **RUN, **POINT),
        ("episode 3000", "unseen", "grow_plant", "'online'", "seed 1"),
    ),
    "missing category at one point everywhere": (
        drop("evaluation", **POINT),
        ("grow_plant", "unseen", "3000"),
    ),
    "missing split": (drop("evaluation", split="unseen"), ("no split 'unseen'",)),
    "other number of goals": (
        put("evaluation", "n", 128, **RUN, **POINT),
        ("n 64", "'online'", "'random'"),
    ),
    "other practice windows": (drop("practice", **RUN, episode=500), ("episode 500", "'online'")),
    "other competence points": (
        drop("competence", sampler="magellan", seed=1, **POINT),
        ("competence.csv", "'magellan'", "seed 1"),
    ),
    "other default": (in_manifest(another_default), ("agent.gamma is 0.5", "0.99", "'online'")),
    "NaN": (put("evaluation", "success", None, **RUN, **POINT), ("no value", "success", "line")),
    "not a number": (put("evaluation", "success", "x", **RUN, **POINT), ("success", "number")),
    "above one": (put("evaluation", "success", 1.5, **RUN, **POINT), ("success", "0 and 1")),
    "unknown category": (put("practice", "category", "Fly", **RUN), ("'Fly'", "grasp")),
    "impossible played": (
        put("evaluation", "category", "impossible", category="grasp"),
        ("'impossible'",),
    ),
    "two rows": (twice, ("practice.csv", "two rows")),
    "other columns": (without_column, ("evaluation.csv", "columns")),
    "other configuration": (
        in_manifest(another_length),
        ("budget.episodes is 9", "counted", "'online'"),
    ),
    "no table": (lambda folder: (folder / "training.csv").unlink(), ("training.csv", "missing")),
    "empty table": (lambda folder: (folder / "training.csv").write_text(""), ("not a CSV",)),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), ("manifest.json",)),
    "broken manifest": (
        lambda folder: (folder / "manifest.json").write_text("{"),
        ("manifest.json", "JSON"),
    ),
    "manifest of something else": (
        lambda folder: (folder / "manifest.json").write_text("{}"),
        ("manifest.json", "experiment"),
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_incomparable_tables_are_refused_in_one_line(folder, case):
    spoil, words = SPOILED[case]
    store.load(folder)
    spoil(folder)
    text = refusal(folder)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("status", "running", ("running", "complete")),
        ("schema_version", 1, ("schema_version: 1", "older version", "allowed: 2")),
        ("schema_version", 3, ("schema_version: 3", "2")),
        ("seed", None, ("seed", "missing")),
    ],
)
def test_unfinished_or_foreign_runs_are_not_combined(runs, tmp_path, key, value, words):
    run = tmp_path / "seed0"
    shutil.copytree(runs[0], run)
    change = {key: value}
    if value is None:
        edit_json(run / "manifest.json", lambda manifest: manifest.pop(key))
    else:
        edit_json(run / "manifest.json", lambda manifest: manifest.update(change))
    with pytest.raises(InputError) as error:
        store.combine([run, *runs[1:]], synthetic.experiment())
    assert all(word in str(error.value) for word in words)


def test_gaps_are_allowed_in_the_training_table_only(results):
    assert results.tables["training"]["competence_loss"].isna().all()


def test_adopting_copies_tables_and_never_replaces_good_ones_by_broken_ones(folder, tmp_path):
    target = tmp_path / "reference"
    store.adopt(folder.parent, target)
    before = {path.name: path.read_bytes() for path in (target / "tables").iterdir()}
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    drop("evaluation", **RUN)(folder)
    with pytest.raises(InputError):
        store.adopt(folder.parent, target)
    assert before == {path.name: path.read_bytes() for path in (target / "tables").iterdir()}


def test_the_command_line_says_what_is_wrong_in_one_line(folder, capsys):
    assert main(["check", str(folder)]) == 0
    drop("evaluation", **RUN)(folder)
    assert main(["check", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "seed 1" in captured.err
