"""Grids with holes: what is said about them, and that nothing else in the statistics moves."""

import functools
import json

import numpy as np
import pandas as pd
import pytest

from analysis.report import summary
from analysis.statistics import summaries
from analysis.tables import coverage, store
from analysis.tables.grid import Algorithm, Run
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


DECLARED = synthetic.experiment(seeds=(7,), samplers=("online",))
(RUN,) = synthetic.plan(DECLARED)


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


(OTHER,) = synthetic.plan(DECLARED | {"overrides": {"agent": {"gamma": 0.5}}})
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
