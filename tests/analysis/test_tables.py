"""Combined tables: made from runs, written, read, refused, unpacked."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

from analysis.tables import store
from analysis.tables.diagnosis import _check_impossible
from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.manifests import MANIFEST, in_lines, read_combined_manifest
from analysis.tables.results import rows_where
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.runs import refusal
from tests.snippets import contents

SPACE = synthetic.GOAL_SPACE
GRID = [(sampler, "default", SPACE, seed) for sampler in synthetic.SAMPLERS for seed in (0, 1)]
NAMES = ["sampler", "variant", "goal_space", "seed"]


def edit(path, change):
    frame = pd.read_csv(path, dtype={"goal_space": str, "variant": str})
    change(frame).to_csv(path, index=False)


def test_combine_keeps_every_row_and_number_in_the_order_of_the_grid(runs, results):
    shuffled = store.combine(runs[::-1], synthetic.experiment())
    for name, spec in store.TABLES.items():
        frame = results.tables[name]
        pd.testing.assert_frame_equal(frame, shuffled.tables[name])
        assert tuple(frame.columns) == (*NAMES, *spec.columns)
        parts = [pd.read_csv(run / f"{name}.csv", float_precision="round_trip") for run in runs]
        whole = pd.concat([part for part in parts if len(part)], ignore_index=True)
        pd.testing.assert_frame_equal(frame.iloc[:, 4:], whole)
    runs_of_rows = results.tables["evaluation"][NAMES].drop_duplicates()
    assert list(runs_of_rows.itertuples(index=False, name=None)) == GRID
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


def test_a_manifest_says_once_what_all_runs_of_a_variant_have(folder):
    path = folder / MANIFEST
    manifest = read_combined_manifest(folder)
    for run in manifest["runs"]:
        run["wall_seconds"] = 2
    run["wall_seconds"], run["config"]["threads"] = 2.0, 7
    path.write_text(in_lines(manifest))
    again = read_combined_manifest(folder)
    assert json.dumps(again, sort_keys=True) == json.dumps(manifest, sort_keys=True)
    assert path.read_text().count('"num_envs":') == 1
    path.write_text(json.dumps(again | {"common": {"default": {"config": 3}}}))
    assert "common.default.config" in refusal(read_combined_manifest, folder)


def drop(table, **where):
    def spoil(folder):
        edit(folder / f"{table}.csv", lambda frame: frame.drop(rows_where(frame, **where).index))

    return spoil


def put(table, column, value, **where):
    def spoil(folder):
        def change(frame):
            frame[column] = frame[column].astype(object)
            frame.loc[rows_where(frame, **where).index, column] = value
            return frame

        edit(folder / f"{table}.csv", change)

    return spoil


POINT = {"episode": 3_000, "split": "unseen", "category": "grow_plant"}
RUN = {"sampler": "online", "seed": 1}
# Tables that are spoiled, by the words of the error.
SPOILED = {
    "evaluation.csv | 'online' | seed 1": drop("evaluation", **RUN),
    "estimators are ['learned'] | 'online' | seed 1": put(
        "competence", "estimator", "learned", **RUN
    ),
    "training.csv | 159 rows | 'online' | seed 1 | 160": drop("training", **RUN, update=800),
    "competence.csv | n 63 | predicted but not played | 'online'": put(
        "competence", "n", 63, sampler="online", **POINT
    ),
    "competence.csv | unseen | played but not predicted | 'online'": drop(
        "competence", sampler="online", split="unseen"
    ),
    "n is 0 | 1 or more": put("evaluation", "n", 0, **POINT),
    "training.csv | entropy is inf | finite": put("training", "entropy", "inf", **RUN, update=800),
    "no split 'unseen'": drop("evaluation", split="unseen"),
    "n 64 | 'online' | 'random'": put("evaluation", "n", 128, **RUN, **POINT),
    "episode 500 | 'online'": drop("practice", **RUN, episode=500),
    "'impossible'": put("evaluation", "category", "impossible", category="grasp"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SPOILED)
def test_incomparable_tables_are_refused_in_one_line(folder, case):
    store.load(folder)
    SPOILED[case](folder)
    line = refusal(store.load, folder)
    assert all(word in line for word in case.split(" | ")), line


@pytest.mark.parametrize(
    ("rewards", "accepted"),
    [
        ({}, False),
        ({"false_negative": 0.3}, False),
        ({"model": "world", "false_positive": 0.3}, True),
        ({"model": "smollm2"}, True),
    ],
)
def test_impossible_goals_succeed_only_by_a_wrong_evaluator(rewards, accepted, results):
    practice = results.tables["practice"].copy()
    practice.loc[rows_where(practice, **RUN, category="impossible").index, "successes"] = 1
    spoiled = synthetic.with_tables(results, practice=practice)
    run = next(one for one in spoiled.manifest["runs"] if RUN.items() <= one.items())
    changed = run | {"config": run["config"] | {"rewards": rewards}}
    runs = [changed if one is run else one for one in spoiled.manifest["runs"]]
    spoiled = synthetic.with_manifest(spoiled, runs=runs)
    with nullcontext() if accepted else pytest.raises(InputError, match=r"impossible .* 1;"):
        _check_impossible(spoiled)


def test_unpacked_runs_combine_to_the_same_bytes(varied, tmp_path):
    store.write(varied, tmp_path / "tables")
    runs = synthetic.plan(synthetic.VARIED)
    assert store.unpack(tmp_path / "tables", tmp_path / "results") == (len(runs), 0)
    folders = [tmp_path / "results" / run.path for run in runs]
    store.write(store.combine(folders, synthetic.VARIED), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "tables")


def test_the_folder_of_an_experiment_is_told_where_its_tables_are(varied, tmp_path):
    store.write(varied, tmp_path / "mine" / "tables")
    expected = f"tables: {tmp_path}/mine has no combined tables; allowed: {tmp_path}/mine/tables"
    assert refusal(store.unpack, tmp_path / "mine", tmp_path / "results") == expected


def test_a_run_that_is_there_is_left_alone(runs, folder, tmp_path):
    first = synthetic.plan(synthetic.experiment())[0]
    run = tmp_path / "results" / first.path
    run.mkdir(parents=True)
    (run / MANIFEST).write_text("{}")
    assert store.unpack(folder, tmp_path / "results") == (len(runs) - 1, 1)
    assert contents(run) == {MANIFEST: b"{}"}


@pytest.fixture
def studies(varied, varied_runs, tmp_path):
    """Two studies: `varied`, and `base` with MAGELLAN's first variant, there under another name."""
    store.write(varied, tmp_path / "varied")
    planned = zip(synthetic.plan(synthetic.VARIED), varied_runs, strict=True)
    whole = ("magellan", "whole")
    base = [folder for run, folder in planned if (run.sampler, run.variant) == whole]
    declared = synthetic.experiment(("magellan",))
    store.write(store.combine(base, declared), tmp_path / "base")
    return tmp_path / "varied", tmp_path / "base"


def test_runs_of_another_study_are_kept_once_and_come_back(studies, varied):
    folder, base = studies
    before = contents(folder)
    assert store.share(folder, [base]) == 2
    assert set(pd.read_csv(folder / "practice.csv")["variant"]) == {"whole", "small"}
    assert len((folder / "practice.csv").read_bytes()) < len(before["practice.csv"])
    again = store.load_whole(folder)
    assert again.manifest == varied.manifest
    for name, frame in varied.tables.items():
        pd.testing.assert_frame_equal(again.tables[name], frame, check_exact=True)
    assert store.share(folder, []) == 0
    assert contents(folder) == before


def test_tables_that_share_runs_have_any_name_and_are_found_by_any_path(studies, monkeypatch):
    folder, base = studies
    other = base.rename(base.with_name("Base 2.old"))
    whole = store.load_whole(folder).manifest
    assert store.share(folder, [other]) == 2
    link = folder.parent / "deeper" / "link"
    link.parent.mkdir()
    link.symlink_to(folder)
    monkeypatch.chdir(folder)
    for path in (link, Path()):
        assert store.load_whole(path).manifest == whole


def test_folders_do_not_leave_their_runs_to_each_other(studies):
    folder, base = studies
    store.share(folder, [base])
    before = contents(folder) | contents(base)
    assert refusal(store.share, base, [folder]).startswith(f"shared: {base} names itself")
    assert contents(folder) | contents(base) == before
    manifest = json.loads((base / MANIFEST).read_text())
    (base / MANIFEST).write_text(json.dumps({**manifest, "shared": ["varied"]}))
    assert refusal(store.load, folder).startswith(f"shared: {folder} names itself")


def test_a_run_that_differs_elsewhere_is_not_left_there(studies):
    folder, base = studies
    before = contents(folder)
    put("practice", "n", 10**6, seed=1)(base)
    for others, words in (
        ([base], "others: a run of "),
        ([folder], "others: "),
        ([base / "deeper"], "others: "),
        ([base.parent / "absent"], "tables: there is no folder"),
    ):
        assert refusal(store.share, folder, others).startswith(words)
    assert refusal(store.share, base, [folder]).startswith("others: they hold all runs of ")
    assert contents(folder) == before


def test_a_folder_that_holds_the_rest_of_the_runs_is_missed(studies):
    folder, base = studies
    store.share(folder, [base])
    drop("practice", seed=0)(base)
    assert "practice.csv" in refusal(store.load, folder)
    base.rename(base.with_name("moved"))
    assert refusal(store.load, folder) == f"tables: there is no folder {base}"
    manifest = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(manifest.replace('"base"', '"../base"'))
    assert "shared" in refusal(store.load, folder)


def columns_explained(text):
    """Columns before the colon of each line of a list."""
    heads = re.findall(r"^- ((?:`\w+`(?:, )?)+): .", text, re.MULTILINE)
    return [name for head in heads for name in re.findall(r"\w+", head)]


def test_the_page_of_tables_has_each_column_and_its_meaning(statistics):
    page = (Path(__file__).parents[2] / "docs/tables.md").read_text()
    shared, *sections = re.split(r"^##+ (?=.*\.csv$|Of runs)", page, flags=re.MULTILINE)
    explained = columns_explained(shared)
    listed = []
    for title, _, text in (section.partition("\n") for section in sections[1:]):
        listed.append((title, set(columns_explained(text))))
    assert len(set(explained)) == len(explained)
    tables = [(name, {*RUN_COLUMNS, *spec.columns}) for name, spec in store.TABLES.items()]
    tables += [(name, set(COLUMNS[name])) for name in ("goals", "outcomes")]
    for name in sorted(statistics):  # of runs that end by episodes
        tables.append((name, set(statistics[name].rename(columns={"episode": "step"}).columns)))
    assert [title for title, _ in listed] == [f"{name}.csv" for name, _ in tables]
    for (title, own), (_, columns) in zip(listed, tables, strict=True):
        assert own <= columns <= {*explained, *own}, title
    assert set(explained) <= set().union(*(columns for _, columns in tables))
