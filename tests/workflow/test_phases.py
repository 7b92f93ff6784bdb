"""Runs with phases in the workflow: what several begin with is trained once."""

import json
import shutil
from collections import Counter

import pytest

from magellan.config import beginning, grid, identity, load_experiment, read_yaml
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
    """The experiment that docs/runs.md shows."""
    blocks = dict(BLOCK.findall((ROOT / "docs/runs.md").read_text()))
    return parse_yaml(blocks["replaced.yaml"], "docs/runs.md")


def plan(values):
    """The runs of an experiment, and what they start from."""
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


def test_the_study_that_separates_practice_and_learner_goes_on_from_the_reference_studys_runs():
    separated, starts = plan(read_yaml(ROOT / "config/studies/separated.yaml"))
    study, _ = plan(read_yaml(ROOT / "config/samplers.yaml"))
    begun = {starts[run.identity].run.identity for run in separated}
    runs = [run for run in study if (run.sampler, run.variant) == ("magellan", "base")]
    assert begun == {run.identity for run in runs if run.seed in range(3, 9)}


def test_runs_that_share_only_their_first_phase_start_from_what_started_there():
    phases = [FIRST, {"until": 90}, NEW]  # the second phase has the sampler and seed of the grid
    runs, starts = plan(declared(overrides={**OBSERVED, "phases": phases}))
    seconds = [starts[run.identity].run for run in runs]
    assert len({second.identity for second in seconds}) == len(runs)
    assert len({starts[second.identity].run.identity for second in seconds}) == 1
    assert len(starts) == 2 * len(runs)


def test_a_beginning_that_is_nobody_elses_is_no_run_of_its_own():
    runs, starts = plan(declared(overrides={**OBSERVED, "phases": [{"until": 60}, NEW]}))
    assert starts == {}
    assert len({identity(beginning(run.config)) for run in runs}) == len(runs)


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


# --- starts from what a longer run keeps ----------------------------------------------------------


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
    # Where none is kept each has a beginning of its own, as far as runs share it.
    without = {"a": ends(30), "b": ends(60), "c": ends(90)}
    assert kept(without) == {(30, None): 4, (60, None): 4, (90, None): 4}
    assert kept(without, **single) == {}


def test_a_run_of_the_grid_may_be_the_one_that_keeps():
    long = {"phases": [], "budget": {"episodes": 90, "keep_every": 30}}
    own = {"samplers": ["magellan"], "seeds": [0], "overrides": {"observers": ["per_goal"]}}
    variants = {"a": ends(30), "b": ends(60), "long": long}
    runs, starts = plan(declared(variants=variants, **own))
    (longest,) = [run for run in runs if run.variant == "long"]
    assert {start.run.identity for start in starts.values()} == {longest.identity}
    assert {start.path for start in starts.values()} == {f"{longest.path}/{n}" for n in (30, 60)}


@pytest.mark.parametrize(
    "longer",
    [
        ends(90, keep_every=20),
        ends(90, keep_every=30, practice_window=45),
        {**ends(90, keep_every=30), "agent": {"gamma": 0.9}},
        {"phases": [{**FIRST, "until": 90, "seed": 1}, NEW], "budget": ends(90)["budget"]},
    ],
    ids=["another point", "across a row", "another constant", "another seed"],
)
def test_a_run_that_differs_at_that_length_is_no_start(longer):
    window = longer["budget"].get("practice_window", 30)
    first = ends(30, practice_window=window)
    assert kept({"a": first, "longer": longer}) == {(30, None): 4, (90, None): 4}


def test_the_papers_fourth_question_is_one_long_run_and_those_that_start_from_it():
    values = read_yaml(ROOT / "config/paper_evolving.yaml")
    runs, starts = plan(values)
    assert len(runs) == len(starts) == 10 * 4 * 8
    assert {start.run.identity for start in starts.values()} == {
        starts[runs[0].identity].run.identity
    }
    first = starts[runs[0].identity].run.config
    assert (first.sampler, first.budget.episodes, first.phases) == ("magellan", 500_000, ())
    points = Counter(start.kept for start in starts.values())
    assert points == {None: 32, **dict.fromkeys(range(50_000, 500_000, 50_000), 32)}
    lengths = {run.config.budget.episodes - run.config.phases[0].until for run in runs}
    assert lengths == {50_000}
    paper = read_yaml(ROOT / "config/paper.yaml")["overrides"]
    assert paper.pop("budget") == {"export": True}  # left beside a run; the rest is the agent
    assert paper == {key: values["overrides"][key] for key in paper}


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


def test_a_complete_run_needs_no_start(tmp_path, monkeypatch):
    whole = Plan(load_experiment(declared(results=str(tmp_path))))
    assert len(whole.start_files(whole.grid[0])) == 1
    monkeypatch.setattr(whole, "_is_complete", lambda run: True)
    assert whole.start_files(whole.grid[0]) == []


def test_jobs_start_from_the_beginning_that_they_share(tmp_path):
    whole = Plan(load_experiment(declared(results=str(tmp_path))))
    (first,) = {run.identity: run for run in whole.beginnings}.values()
    assert len(whole.grid) == 4
    for run in whole.grid:
        words = whole.start_arguments(run, None)
        assert words == ["--start", f"{whole.folder}/{first.path}"]
        assert whole.start_files(run) == [f"{words[1]}/manifest.json"]
    assert whole.start_arguments(first, None) == whole.start_files(first) == []
    words = " ".join(whole.train_arguments(first, None))
    assert "--sampler magellan" in words
    assert "budget.episodes=60" in words
    assert 'observers=["per_goal"]' in words
    assert whole.variant_text(first, None) == ", the shared beginning of others,"
