"""Checkpoints kept for good, by number of episodes, and runs that start from those of others."""

import json
import shutil

import pytest

from magellan.config import identity, resolve_run
from magellan.jobs.checkpoint import Checkpoints, decode, points
from magellan.jobs.run import train
from magellan.launcher.run import resumes
from tests.runs import SPACE, refusal, refuses, tables, trained

LAYER = {"sampler": "random", "goal_space": "40-8-4-2-2", "budget": {"keep_every": 50}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(config(), tmp_path_factory.mktemp("kept") / "run")


def config(**layer):
    return resolve_run("smoke", [{**LAYER, **layer}])


def test_one_for_each_number_that_was_passed(whole):
    assert sorted(path.name for path in whole.iterdir() if path.name.isdecimal()) == ["100", "50"]
    for number in (50, 100):
        [path] = (whole / str(number) / "checkpoints").iterdir()
        episodes = decode(path)[1]["trainer"]["episodes"]
        assert number <= episodes < number + 50
    assert "kept 50/checkpoints/00000001.safetensors" in (whole / "run.log").read_text()


def test_a_run_goes_on_from_one(whole, tmp_path):
    output = tmp_path / "again"
    assert resumes(config(), output, whole / "50")
    train(config(), output, True, "none")
    assert tables(output) == tables(whole)
    assert sorted(path.name for path in output.iterdir() if path.name.isdecimal()) == ["100"]


def test_what_cannot_be_gone_on_from(whole, tmp_path):
    """For a run's own checkpoint, the error does not ask to train another run again."""
    assert not resumes(config(), tmp_path / "run", None)
    key = "^rl_script_args.loading_path: .*"
    refuses(f"{key} holds no checkpoint; ", resumes, config(), tmp_path / "run", tmp_path)
    refuses(f"{key}another conf", resumes, config(seed=1), tmp_path / "run", whole / "50")


def test_what_another_run_has_kept_is_not_taken_for_this_ones(whole, tmp_path):
    """Its checkpoints were moved away, as an error advises; kept ones are still present."""
    shutil.copytree(whole / "50", tmp_path / "run" / "50")
    before = sorted(tmp_path.rglob("*"))
    refuses("/50/check.*s belongs to .*seed", train, config(seed=1), tmp_path / "run", True, "none")
    assert "already holds a run (50)" in refusal(train, config(), tmp_path / "run", False, "none")
    assert sorted(tmp_path.rglob("*")) == before
    train(config(), tmp_path / "run", True, "none")
    assert tables(tmp_path / "run") == tables(whole)


LONG = {
    "sampler": "magellan",
    "goal_space": SPACE,
    "seed": 5,
    "observers": ["learned", "per_goal"],
    # No evaluation is planned at 30 or 90 episodes; some rounds end more than one episode.
    "budget": {"keep_every": 30, "evaluate_every": 40, "record_goals": True, "evaluation_goals": 2},
}


def long_run(**layer):
    return resolve_run("smoke", [LONG, layer])


def short_run(until, **layer):
    """One phase of the long run, and one with other goals."""
    phases = [{"until": until, "sampler": "magellan", "seed": 5}, {"goals": {"split": "unseen"}}]
    named = {"sampler": "random", "seed": 3, "phases": phases}
    return resolve_run("smoke", [LONG, {"budget": {"episodes": until + 30}}, layer, named])


@pytest.mark.slow
def test_a_run_from_a_kept_checkpoint_is_the_whole_run(tmp_path):
    """Also where a round passes several points, which are all kept."""
    layer = {"budget": {"practice_window": 3, "keep_every": 3}}
    layer |= {"agent": {"num_envs": 32, "steps_per_update": 160}}
    long = trained(long_run(**layer), tmp_path / "long")
    assert points(long)[:40] == list(range(3, 121, 3))
    kept = Checkpoints(long / "30", long_run(**layer)).load()
    assert kept.state["trainer"]["episodes"] > 32
    whole = trained(short_run(30, **layer), tmp_path / "whole")
    started = trained(short_run(30, **layer), tmp_path / "started", start=long / "30")
    left = [path.name for path in whole.glob("*.csv")]
    assert {"goals.csv", "evaluation.csv", "practice.csv"} <= set(left)
    for name in left:
        assert (started / name).read_bytes() == (whole / name).read_bytes()
    begun = json.loads((started / "manifest.json").read_text())["started_from"]
    assert (begun["run"], begun["at"]) == (identity(long_run(**layer)), 30)
    assert (long / begun["checkpoint"]).is_file()
    assert "was at 30, 30/" in (started / "run.log").read_text()


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    long = trained(long_run(), tmp_path / "long")

    def refused(start, until=60, **layer):
        return refusal(trained, short_run(until, **layer), tmp_path / "r", start)

    allowed = f"RUN/60; {long} keeps 30, 60, 90, 120"
    message = refused(long / "45", until=45)
    assert f"{long}/45 holds no checkpoint; allowed: a run that is the same up to 45 epi" in message
    assert message.endswith(allowed.replace("/60", "/45"))
    assert "is a run at 90 episodes; allowed: a run that is the same up to" in refused(long / "90")
    assert not (tmp_path / "r").exists()
    assert "agent.gamma is 0.9 here" in refused(long / "60", agent={"gamma": 0.9})
    assert "budget.episodes is 60 here and 120 there" in refused(long)
    across = {"budget": {"practice_window": 50}}
    trained(long_run(**across), tmp_path / "across")
    words = "a row of practice.csv continues past 60 episodes: budget.practice_window is 50"
    assert words in refused(tmp_path / "across/60", **across)
