"""Runs that are missing are listed with their reason; others than asked for are refused by name."""

import functools
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.report import summary
from analysis.statistics import summaries
from analysis.tables import coverage, identity, store
from analysis.tables.grid import Algorithm, Run
from magellan.config import hash_of
from magellan.core.errors import InputError
from magellan.jobs.provenance import Attempts
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown

FULL, HALF, EMPTY = synthetic.GOAL_SPACE, "40-20-12-8-8", "25k"
EXPERIMENT = synthetic.experiment(goal_spaces=(FULL, HALF, EMPTY), seeds=(0, 1, 2))
PLAN = synthetic.plan(EXPERIMENT)
MISSING = [
    Run(sampler, "default", goal_space, seed)
    for sampler, goal_space, seed in [
        ("random", FULL, 1),
        ("magellan", FULL, 0),
        ("magellan", FULL, 2),
        *(("random", HALF, seed) for seed in (0, 1)),
        *(("magellan", HALF, seed) for seed in (0, 1, 2)),
        *((sampler, EMPTY, seed) for sampler in synthetic.SAMPLERS for seed in (0, 1, 2)),
    ]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A results folder with every run of the goal spaces FULL and HALF."""
    root = tmp_path_factory.mktemp("grid")
    declared = EXPERIMENT | {"goal_spaces": [FULL, HALF]}
    synthetic.write_runs(root, declared, episodes=4_000)
    return root


@pytest.fixture(scope="module")
def partial(folder, tmp_path_factory):
    """Tables with holes, written and read again, and their statistics."""
    tables = tmp_path_factory.mktemp("tables")
    runs = [run for run in PLAN if coverage.run_of(run.declared()) not in MISSING]
    there = [folder / run.path for run in runs]
    store.write(store.combine(there, EXPERIMENT, incomplete=tables / "nothing"), tables)
    results = store.load(tables)
    return results, summaries.compute(results)


def test_every_declared_run_is_either_there_or_listed_as_missing(partial):
    results, _ = partial
    listed = [coverage.run_of(entry) for entry in results.manifest["missing"]]
    assert sorted(listed) == sorted(MISSING)
    assert set(results.runs).isdisjoint(listed)
    assert {entry["reason"] for entry in results.manifest["missing"]} == {"not started"}
    assert results.goal_spaces == (FULL, HALF)
    samplers = [algorithm.sampler for algorithm in results.algorithms_in(HALF)]
    assert samplers == ["random", "online", "ek_online"]
    assert results.seeds_of(Algorithm("random", "default"), FULL) == (0, 2)
    assert results.seed_counts(FULL) == (2, 3, 3, 1)


def test_a_wrong_list_of_missing_runs_is_refused(partial):
    """It names a run that is there, an undeclared one, or one twice."""
    results, _ = partial
    there, undeclared = (Run("online", "default", FULL, seed) for seed in (1, 9))
    for run in (there, undeclared, MISSING[0]):
        missing = [*results.manifest["missing"], dict(run._asdict(), reason="", log=None)]
        with pytest.raises(InputError, match=r"cannot be listed|seed 9"):
            store.diagnose(synthetic.with_manifest(results, missing=missing))


@pytest.mark.slow
def test_samplers_without_a_hole_have_the_statistics_of_the_whole_grid(partial, folder):
    declared = EXPERIMENT | {"goal_spaces": [FULL, HALF]}
    folders = [folder / run.path for run in synthetic.plan(declared)]
    whole = summaries.compute(store.combine(folders, declared))
    _, statistics = partial
    for name, frame in statistics.items():
        if name in ("improvement", "comparison", "comparison_steps", "phases"):
            continue
        against_the_reference = ["log_rank", "p", "p_holm"] if name == "mastery" else []
        for sampler in ("online", "ek_online"):
            rows, expected = (
                table[table["sampler"] == sampler]
                .drop(columns=against_the_reference)
                .reset_index(drop=True)
                for table in (frame, whole[name])
            )
            assert len(rows)
            pd.testing.assert_frame_equal(rows, expected, check_dtype=False)


def test_the_others_rest_on_the_runs_that_are_there(partial):
    results, statistics = partial
    for name in ("success", "aggregates", "profiles", "sample_efficiency"):
        runs = statistics[name].groupby(["goal_space", "sampler"])["runs"].agg(["min", "max"])
        assert runs.loc[(FULL, "random")].tolist() == [2, 2]
        assert runs.loc[(FULL, "magellan")].tolist() == [1, 1]
        assert runs.loc[(HALF, "random")].tolist() == [1, 1]
        assert (HALF, "magellan") not in runs.index
    evaluation = results.table("evaluation", sampler="random", goal_space=FULL, split="unseen")
    last = evaluation[evaluation["episode"] == 4_000]
    keys = ["goal_space", "split", "score", "sampler", "statistic"]
    rows = statistics["aggregates"].set_index(keys)
    row = rows.loc[(FULL, "unseen", "final", "random", "mean")]
    assert row["value"] == pytest.approx(last["success"].mean())
    single = rows.loc[(FULL, "unseen", "final", "magellan", "mean")]
    assert np.isnan(single["low"])
    assert single["method"] == "none: a single seed"
    improvement = statistics["improvement"]  # one side is a single seed
    assert set(improvement["goal_space"]) == {FULL}
    assert improvement[["low", "high"]].isna().all(axis=None)


def test_the_summary_lists_what_is_missing_and_the_seeds_of_each_sampler(partial):
    results, statistics = partial
    text = to_markdown(summary, results, statistics)
    note = text.splitlines()[0]
    assert note.startswith("Incomplete grid: 16 of 36 declared runs are complete; missing: ")
    assert coverage.run_name(MISSING[0]) in note
    assert "mean over n = 1 to 3 seeds" in text
    assert EMPTY not in text.replace(note, "")
    success = summary.SummaryTables(results, statistics, FULL).success("train")
    table = synthetic.frame_of(success).set_index("Sampler")
    assert table["n"].tolist() == ["2", "3", "3", "1"]
    assert "(" not in table.loc["MAGELLAN", "Grasp"]


ONE_RUN = synthetic.experiment(seeds=(7,), samplers=("online",))
(RUN,) = synthetic.plan(ONE_RUN)


def attempt(folder, log):
    for reason in ("stopped: SIGTERM", "not finite: a\n b"):
        attempts = Attempts(folder, "hash")
        attempts.begin(None)
        attempts.end(reason)
    (folder / "run.log").write_text("what happened\n")


def killed(folder, log):
    attempt(folder, log)
    Attempts(folder, "hash").begin(None)


def finished(folder, log, run=RUN, **changes):
    synthetic.write_run(folder, run, episodes=1_000)
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


(OTHER,) = synthetic.plan(ONE_RUN | {"overrides": {"agent": {"gamma": 0.5}}})
ERROR = "half way\nerror: \x1b[31mnowhere\n\n"
DIFFERS = "complete, but not the planned run: agent.gamma is 0.5 in the run and 0.99 in"
# What there is of a run, the reason, and which log.
REASONS = [
    (lambda folder, log: None, coverage.NOT_STARTED, None),
    (attempt, "not finite: a b", "run"),
    (killed, coverage.NO_END, "run"),
    (lambda folder, log: log.write_text(ERROR), "error: \\x1b[31mnowhere", "job"),
    (finished, coverage.FILES_GONE, None),
    (functools.partial(finished, run=OTHER), DIFFERS, None),
    (functools.partial(finished, status="running"), "manifest.json: status: 'running' is", None),
]


@pytest.mark.parametrize(("write", "reason", "log"), REASONS)
def test_a_missing_run_has_its_reason_and_its_log(tmp_path, write, reason, log):
    folder, printed = tmp_path / RUN.path, coverage.job_log(tmp_path, RUN)
    folder.mkdir(parents=True)
    printed.parent.mkdir(parents=True)
    write(folder, printed)
    files = [f"{name}.csv" for name in store.TABLES]
    whole = coverage.is_complete(folder, files, RUN.identity)
    assert whole == (reason == coverage.FILES_GONE)
    assert not coverage.is_complete(folder, [*files, "gone.csv"], RUN.identity)
    (entry,) = coverage.missing_runs(tmp_path, [RUN])
    assert entry["reason"].startswith(reason)
    assert "\n" not in entry["reason"]
    expected = {
        "run": f"{RUN.path}/run.log",
        "job": f"logs/train/online/{FULL}/seed7/{RUN.identity}.log",
        None: None,
    }[log]
    assert entry["log"] == expected
    assert str(tmp_path) not in json.dumps(entry)
    line = coverage.describe_missing([entry], tmp_path)
    assert "seed 7" in line
    assert reason in line
    assert expected is None or f"{tmp_path}/{expected}" in line


DECLARED = synthetic.experiment(
    ("random", "magellan"),
    variants=synthetic.VARIANTS,
    overrides={"agent": {"gamma": 0.9, "learning_rate": "1e-4"}},
)
COMBINE = ("combine", "--experiment", json.dumps(DECLARED), "--output")
MAGELLAN_SMALL = r"sampler 'magellan', variant 'small', goal space '1000-400-200-100-50', seed 0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return synthetic.write_runs(tmp_path_factory.mktemp("asked"), DECLARED, episodes=2_000)


@pytest.fixture(scope="module")
def good(folders):
    return store.combine(folders, DECLARED)


def edit(path, change):
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def at_small(manifest):
    """Manifest of MAGELLAN's first run of the variant `small`."""
    return next(run for run in manifest["runs"] if run["variant"] == "small")


def test_overrides_are_kept_as_the_runs_have_them(good):
    """YAML reads 1e-4 as a word; the manifest has the number."""
    assert good.experiment["overrides"] == {"agent": {"gamma": 0.9, "learning_rate": 1e-4}}
    assert good.experiment["variants"] == synthetic.VARIANTS


def other_value(manifest):
    """A run that agrees with itself and has another value."""
    run = at_small(manifest)
    run["counted"]["agent.gamma"] = run["config"]["agent"]["gamma"] = 0.5
    run["identity"] = hash_of(run["counted"])
    for entry, run in zip(manifest["plan"], manifest["runs"], strict=True):
        entry["identity"] = run["identity"]


def swapped(manifest):
    """The runs of two variants, each under the other's name, also in the plan."""
    runs = {run["variant"]: run for run in manifest["runs"] if run["sampler"] == "magellan"}
    for run, name in ((runs["whole"], "small"), (runs["small"], "whole")):
        run["variant"] = name
    identities = {(r["sampler"], r["variant"], r["seed"]): r["identity"] for r in manifest["runs"]}
    for entry in manifest["plan"]:
        entry["identity"] = identities[entry["sampler"], entry["variant"], entry["seed"]]


# Changes of the manifest by the pattern of the error.
REFUSED = {
    f"competence.buffer is 100 in the run and 50 in the experiment, for {MAGELLAN_SMALL}": (
        lambda m: m["experiment"]["variants"]["small"]["competence"].update(buffer=50)
    ),
    f"agent.gamma is 0.5 in the run and 0.9 in the experiment, for {MAGELLAN_SMALL}": other_value,
    "agent.polyak is 0.5 for .*, 0.005 elsewhere": (
        lambda m: at_small(m)["config"]["agent"].update(polyak=0.5)
    ),
    "competence.buffer is 5000 in the run and 100 in the experiment, for .*'small'": swapped,
    "estimators are .* for .*variant 'small'.*allowed: the same for all runs of an algorithm": (
        lambda m: m["runs"][-1].update(estimation_episodes={"learned": 0, "per_goal": 0})
    ),
    "'zoo-mini' has weights with SHA-256 a{12} for .* and b{12} for .*'magellan', seed 0": (
        lambda m: at_small(m)["backbone"].update(sha256="b" * 64)
    ),
    "'zoo-mini' has token ids with SHA-256 c{12} for .* and b{12} for .*'magellan', seed 0": (
        lambda m: at_small(m).update(tokens="b" * 64)
    ),
    "analysis.reference: 'random/small' is not .*; allowed: random/whole, magellan/whole, ": (
        lambda m: m["experiment"]["analysis"].update(reference="random/small")
    ),
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_tables_with_another_run_are_refused_in_one_line(good, pattern, refused, tmp_path):
    def with_backbones(manifest):
        for run in manifest["runs"]:
            run |= {"backbone": {"model": "zoo-mini", "sha256": "a" * 64}, "tokens": "c" * 64}
        del manifest["runs"][0]["tokens"]  # as older runs

    folder = tmp_path / "tables"
    store.write(good, folder)
    (folder / "manifest.json").write_text(json.dumps(good.manifest))  # as older tables
    edit(folder / "manifest.json", with_backbones)
    store.load(folder)
    edit(folder / "manifest.json", REFUSED[pattern])
    line = refused("statistics", folder, tmp_path / "statistics")
    assert re.search(pattern, line), line
    assert not (tmp_path / "statistics").exists()


def copied_with(folders, place, changes):
    """The folders; the first ones copied, with these entries in their manifests."""
    copies = []
    for folder, entries in zip(folders, changes, strict=False):
        copies.append(shutil.copytree(folder, place / str(len(copies))))
        edit(copies[-1] / "manifest.json", lambda run, entries=entries: run.update(entries))
    return [*copies, *folders[len(copies) :]]


def test_two_folders_of_one_run_are_refused(folders, tmp_path):
    again, *_ = copied_with(folders, tmp_path / "again", [{}])
    with pytest.raises(InputError, match=r"again/0: two runs for .*'random'.*the other is "):
        store.combine([*folders, again], DECLARED)


def test_a_key_that_cannot_matter_may_have_changed_since_a_run_was_made(folders, tmp_path):
    """`random` has no competence head: what the head's settings were makes no other run."""
    config = json.loads((folders[0] / "manifest.json").read_text())["config"]
    config["competence"]["hidden"] = 999
    declared = {**DECLARED, "overrides": {**DECLARED["overrides"], "competence": {"hidden": 16}}}
    manifest = store.combine(
        copied_with(folders, tmp_path, [{"config": config}]), declared
    ).manifest
    assert manifest["runs"][0]["config"]["competence"]["hidden"] == 999


def run_with(**changes):
    return {"code_version": "0.1.0+abc", "versions": {"torch": "2.9.0"}, "modules": {}, **changes}


def test_notes_count_runs_by_version_and_name_what_no_commit_has():
    runs = [
        run_with(),
        run_with(),
        run_with(code_version="0.1.0+def.dirty", versions={"torch": "2.10.0"}),
        run_with(attempt_log=[{"code_version": "0.1.0+old"}, {"code_version": "0.1.0+abc"}]),
    ]
    assert identity.notes(runs) == [
        "code: 0.1.0+abc (2 runs), 0.1.0+def.dirty (1 run), 0.1.0+old then 0.1.0+abc (1 run); "
        "dirty: with uncommitted changes",
        "torch: 2.9.0 (3 runs), 2.10.0 (1 run)",
    ]
    only_dirty = [run_with(code_version="0.1.0+abc.dirty")]
    assert identity.notes(only_dirty)[0].startswith("code: 0.1.0+abc.dirty (1 run); dirty: ")


FLOAT, BFLOAT = {"dtype": "float32"}, {"dtype": "bfloat16"}
ON_THE_WAY = {
    "format": ({"attempt_log": [FLOAT, BFLOAT]}, "number format: float32 then bfloat16"),
    "beginning": ({"started_from": {"made_with": [FLOAT]}}, "number format: float32 then bfloat16"),
    "library": ({"attempt_log": [{"versions": {"torch": "2.8.0"}}]}, "torch: 2.8.0 then 2.9.0"),
    "module": (
        {"started_from": {"made_with": [{"modules": {"mine.py": "b" * 64}}]}},
        f"module mine.py: {'b' * 12} then {'a' * 12}",
    ),
}


@pytest.mark.parametrize("case", ON_THE_WAY)
def test_what_changed_on_the_way_is_noted_even_if_it_did_in_all_runs(case):
    changes, words = ON_THE_WAY[case]
    last = {**BFLOAT, "device": "cpu", "passes": "plain", "modules": {"mine.py": "a" * 64}}
    run = run_with(**last, **changes)
    assert identity.notes([run, run]) == [f"{words} (2 runs)"]
    others = [note for note in identity.notes([run, run_with(**last)]) if note != BEGUN]
    assert others == [f"{words} (1 run), {words.rpartition(' ')[2]} (1 run)"]


BEGUN = "beginning: another run's (1 run), its own (1 run)"


def test_runs_that_started_from_another_run_are_noted():
    """Made by an earlier version, which did not say what that one was made with."""
    assert identity.notes([run_with(started_from={"run": "0"}), run_with()]) == [BEGUN]


def using(digit, name="sampler random", path="mine.py"):
    return {"modules": {path: digit * 64}, "uses": {name: path}}


MIXES = {
    "another path": [using("a"), using("b", path="copy.py")],
    "a beginning": [{**using("b"), "started_from": {"made_with": [using("a")]}}],
}


@pytest.mark.parametrize("case", MIXES)
def test_runs_of_two_versions_of_a_module_are_not_put_together(case, folders, tmp_path):
    mixed = copied_with(folders, tmp_path, MIXES[case])
    with pytest.raises(InputError, match=r"^modules: '.*' with .* had SHA-256 a{12} for ") as error:
        store.combine(mixed, DECLARED)
    assert "allowed: one version in all runs" in str(error.value)


def test_a_module_that_a_run_does_not_use_may_differ(folders, tmp_path):
    changes = [{**using(digit, path="figure.py"), "uses": {}} for digit in "ab"]
    mixed = copied_with(folders, tmp_path, changes)
    notes = store.combine(mixed, DECLARED).manifest["notes"]
    assert notes[-1].startswith(f"module figure.py: {'a' * 12} (1 run), {'b' * 12} (1 run)")


def test_combine_reports_what_differs_and_keeps_it(folders, tmp_path, printed):
    mixed = copied_with(folders, tmp_path / "runs", [{"code_version": "0.1.0+\x1b[2J"}])
    note = "code: 0.1.0+\\x1b[2J (1 run), 0.1.0+0123456789ab (5 runs)"
    assert f"not alike: {note}\n" in printed(*COMBINE, tmp_path / "tables", *mixed)
    printed("page", tmp_path / "tables", tmp_path / "page.html")
    assert note in (tmp_path / "page.html").read_text()
