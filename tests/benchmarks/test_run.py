"""The command, its files, and what it refuses."""

import csv
import json
import sys

import numpy as np
import pytest

from benchmarks import run, world
from benchmarks.timing import in_fresh_process
from magellan.cli import main
from magellan.worlds.little_zoo import GoalSpace


def test_quick_environment_writes_its_files(tmp_path, capsys):
    folder = tmp_path / "bench"
    assert main(["bench", "--quick", "--only", "environment", "--output", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed == (folder / "bench.md").read_text()
    assert printed.startswith("| what | model |")
    with (folder / "bench.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["row"], row["unit"]) == ("random play, resets included", "steps/s")
    assert float(row["value"]) > 0
    assert float(row["released"]) == 1_880
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["groups"] == ["environment"]
    assert manifest["quick"] is True
    assert manifest["threads"] == 1
    assert manifest["matmul_gflop_per_second"] > 0
    assert 0 < manifest["cpu_seconds"] <= manifest["wall_seconds"] + 1
    assert {"cpu", "cores", "versions", "code_version", "started"} <= manifest.keys()


def test_unknown_group_is_refused_before_any_work(tmp_path, capsys):
    folder = tmp_path / "bench"
    assert main(["bench", "--only", "goals", "--only", "zoo", "--output", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "error: --only: 'zoo' is unknown; "
        "allowed: environment, goals, samplers, zoo-mini, t5, all\n"
    )
    assert not folder.exists()


def test_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "_measure", lambda *_: pytest.fail("work before the check"))
    (tmp_path / "file").write_text("")
    assert main(["bench", "--quick", "--output", str(tmp_path / "file" / "bench")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --output: ")
    assert error.count("\n") == 1


def test_without_the_package_the_command_says_where_it_runs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "benchmarks.run", None)
    assert main(["bench"]) == 2
    assert "clone of the repository" in capsys.readouterr().err


def test_a_new_process_reports_its_own_figures():
    ballast = np.ones(60_000_000)  # 480 MB that are not the new process's
    figures = in_fresh_process("goals", "400")
    assert figures["seconds"] > 0
    assert 1 < figures["peak_mb"] < ballast.nbytes / 1e6


@pytest.mark.parametrize("name", ["online", "ek_online"])
def test_every_draw_follows_the_learning_progress_of_windows(name):
    """Half of 100 fair coins differs from the other half in eleven windows of twelve."""
    goals = GoalSpace.draw((30, 20, 20, 20, 20), seed=0)
    sampler = world.filled_sampler(name, goals, np.random.default_rng(3))
    feasible = goals.categories > 0
    assert sampler.epsilon == 0.0
    assert (sampler.probabilities()[feasible] > 0).mean() > 0.8
    assert len(set(sampler.probabilities()[feasible].round(9))) > 3
    assert (sampler.sample(50) >= 0).all()


class RecordingSampler:
    """Remembers the goals of its outcomes."""

    estimator = "one with windows"

    def __init__(self) -> None:
        self.goals: list[int] = []

    def update(self, outcomes) -> None:
        self.goals += outcomes.goals.tolist()


def test_windows_are_full_of_the_goals_practised(monkeypatch):
    monkeypatch.setattr(world, "FILLED_AT_MOST", 50)
    monkeypatch.setattr(world, "GOALS_PER_FILL", 20)
    monkeypatch.setattr(world, "make_sampler", lambda *_: RecordingSampler())
    goals = GoalSpace.draw((150, 1, 1, 1, 1), seed=0)
    filled = world.filled_sampler("online", goals, np.random.default_rng(0))
    times = np.bincount(filled.goals, minlength=len(goals))
    assert sorted(times)[-50:] == [world.WINDOW] * 50
    assert times.sum() == 50 * world.WINDOW
