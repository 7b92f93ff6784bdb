"""Runs with phases in the workflow: what several begin with is trained once."""

import json
import shutil
from collections import Counter

import pytest

from magellan.config import grid, load_experiment
from magellan.config.grid import shared_beginnings
from magellan.core.parsing import parse_yaml
from magellan.jobs.run import train
from tests.snippets import BLOCK
from tests.workflow.conftest import ROOT
from workflow.planning import Plan

FIRST = {"until": 60, "sampler": "magellan", "seed": 0}
NEW = {"goals": {"split": "unseen"}}
OBSERVED = {"observers": ["per_goal", "learned"]}


def declared(**changes):
    return {
        "experiment": "changing",
        "preset": "smoke",
        "samplers": ["random", "online"],
        "goal_spaces": ["40-20-10-5-5"],
        "seeds": [0, 1],
        "overrides": {**OBSERVED, "phases": [FIRST, NEW]},
        **changes,
    }


def documented() -> dict:
    blocks = dict(BLOCK.findall((ROOT / "docs/runs.md").read_text()))
    return parse_yaml(blocks["replaced.yaml"], "docs/runs.md")


def plan(values):
    runs = grid(load_experiment(values))
    return runs, shared_beginnings(runs)


def test_the_documented_experiment_trains_its_first_phase_once():
    runs, starts = plan(documented())
    assert len(runs) == 12
    assert set(starts) == {run.identity for run in runs}
    (start,) = {start.run.identity: start.run for start in starts.values()}.values()
    assert {start.kept for start in starts.values()} == {None}
    assert (start.sampler, start.seed, start.config.budget.episodes) == ("magellan", 0, 4_000)
    assert start.config.phases == ()


def test_runs_that_share_only_their_first_phase_start_from_what_started_there():
    phases = [FIRST, {"until": 90}, NEW]  # the second phase has the sampler and seed of the grid
    runs, starts = plan(declared(overrides={**OBSERVED, "phases": phases}))
    seconds = [starts[run.identity].run for run in runs]
    assert len({second.identity for second in seconds}) == len(runs)
    assert len({starts[second.identity].run.identity for second in seconds}) == 1
    assert len(starts) == 2 * len(runs)


def test_a_beginning_that_is_a_run_of_the_grid_is_that_run():
    variants = {
        "short": {"budget": {"episodes": 60}},
        "one": {"phases": [{"until": 60}, {"goals": {"seed": 1}}]},
        "other": {"phases": [{"until": 60}, {"goals": {"seed": 2}}]},
    }
    values = declared(variants=variants, overrides={}, seeds=[0], samplers=["random"])
    listed, starts = plan(values)
    runs = {run.variant: run for run in listed}
    assert starts[runs["one"].identity].run is runs["short"]
    assert starts[runs["other"].identity].run is runs["short"]


def ends(until: int, **budget) -> dict:
    """A variant of which the first phase ends there."""
    return {
        "phases": [{**FIRST, "until": until}, NEW],
        "budget": {"episodes": until + 30, **budget},
    }


def kept(variants: dict, **changes) -> Counter:
    """How many runs start from (length of the run, checkpoint of it)."""
    _, starts = plan(declared(overrides=OBSERVED, variants=variants, **changes))
    return Counter((start.run.config.budget.episodes, start.kept) for start in starts.values())


def test_runs_start_from_what_the_longest_one_keeps():
    variants = {"a": ends(30), "b": ends(60), "c": ends(90, keep_every=30)}
    assert kept(variants) == {(90, 30): 4, (90, 60): 4, (90, None): 4}
    single = {"samplers": ["random"], "seeds": [0]}
    assert kept(variants, **single) == {(90, 30): 1, (90, 60): 1, (90, None): 1}


def test_a_run_that_differs_at_that_length_is_no_start():
    """It would cut a row, or has another constant."""
    another = {**ends(90, keep_every=30), "agent": {"gamma": 0.9}}
    for window, longer in ((45, ends(90, keep_every=30, practice_window=45)), (30, another)):
        first = ends(30, practice_window=window)
        assert kept({"a": first, "longer": longer}) == {(30, None): 4, (90, None): 4}


@pytest.mark.slow
def test_runs_that_the_workflow_starts_are_those_of_one_call(project, tmp_path):
    """A long run, one that starts where it kept a checkpoint, and one that starts at its end."""
    budget = {"evaluate_every": 15, "practice_window": 15, "evaluation_goals": 1}
    variants = {"early": ends(15), "late": ends(30, keep_every=15)}
    for variant in variants.values():
        variant["budget"] |= budget | {"episodes": variant["phases"][0]["until"] + 15}
    own = {"samplers": ["random"], "seeds": [1], "goal_spaces": ["20-10-6-4-4"]}
    values = declared(variants=variants, overrides={}, **own)
    (project / "changing.yaml").write_text(json.dumps(values))
    results, runs = project / "results/changing", grid(load_experiment(values))
    targets = [f"results/changing/{run.path}/manifest.json" for run in runs]
    project.run(*targets, "-c", "1", "--configfile", "changing.yaml")
    assert len(list((results / "runs").rglob("manifest.json"))) == 3
    begun = {}
    for run in runs:
        folder, whole = results / run.path, tmp_path / "whole" / run.variant
        whole.parent.mkdir(exist_ok=True)
        train(run.config, whole, False, "none")
        written = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
        assert len(written) == 4
        assert written == {path.name: path.read_bytes() for path in whole.glob("*.csv")}
        begun[run.variant] = json.loads((folder / "manifest.json").read_text())["started_from"]
    assert begun["early"]["run"] == begun["late"]["run"]
    assert (begun["early"]["at"], "at" in begun["late"]) == (15, False)
    # What is complete stays so with other runs beside it, and without what it began with.
    for change in ({"variants": {"early": variants["early"]}}, {"seeds": [1, 2]}):
        (project / "other.yaml").write_text(json.dumps(values | change))
        text = project.run(*targets[:1], "-n", "-c", "1", "--configfile", "other.yaml")
        assert "Nothing to be done" in text
    for start in plan(values)[1].values():
        shutil.rmtree(results / start.run.path, ignore_errors=True)
    assert len(list((results / "runs").rglob("manifest.json"))) == 2
    assert "Nothing to be done" in project.run(*targets, "-n", "--configfile", "changing.yaml")


def test_jobs_start_from_the_beginning_that_they_share(tmp_path):
    whole = Plan(load_experiment(declared(results=str(tmp_path))))
    (first,) = {run.identity: run for run in whole.beginnings}.values()
    assert len(whole.grid) == 4
    for run in whole.grid:
        words = whole.start_arguments(run, None)
        assert words == ["--start", f"{whole.folder}/{first.path}"]
        assert whole.start_files(run) == [f"{words[1]}/manifest.json"]
