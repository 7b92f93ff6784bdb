"""Runs that start from a checkpoint kept by a longer run."""

import json
from pathlib import Path

import pytest

from magellan.config import identity, resolve_run
from magellan.core.columns import COLUMNS
from magellan.jobs.checkpoint import Checkpoints, points
from tests import runs

UNSEEN = {"goals": {"split": "unseen"}}
WATCHED = ["learned", "per_goal"]
LONG = {
    "sampler": "magellan",
    "goal_space": runs.SPACE,
    "seed": 5,
    "observers": WATCHED,
    # No evaluation is planned at 30 or 90 episodes; some rounds end more than one episode.
    "budget": {"keep_every": 30, "evaluate_every": 40, "record_goals": True, "evaluation_goals": 2},
}


def long_run(**layer):
    return resolve_run("smoke", [LONG, layer])


def short_run(sampler: str, until: int, more: int = 30, last=UNSEEN, **layer):
    """One phase of the long run, and one with other goals."""
    phases = [{"until": until, "sampler": LONG["sampler"], "seed": LONG["seed"]}, last]
    named = {"sampler": sampler, "seed": 3, "phases": phases}
    return resolve_run("smoke", [LONG, {"budget": {"episodes": until + more}}, layer, named])


def trained(config, folder: Path, start: Path | None = None) -> dict[str, bytes]:
    """All tables of the run."""
    runs.trained(config, folder, start)
    paths = {name: folder / f"{name}.csv" for name in COLUMNS}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def check_start(run, start: Path, folder: Path) -> dict[str, bytes]:
    """A run from a kept checkpoint leaves the tables of the whole run; returns them."""
    started = trained(run, folder / "started", start)
    assert started == trained(run, folder / "whole")
    return started


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    return runs.trained(long_run(), tmp_path_factory.mktemp("long") / "run")


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "until"), [("random", 30), ("magellan", 90)])
def test_a_run_from_a_kept_checkpoint_is_the_whole_run(sampler, until, long, tmp_path):
    started = check_start(short_run(sampler, until), long / str(until), tmp_path)
    assert {"goals", "evaluation", "practice"} <= started.keys()
    manifest = json.loads((tmp_path / "started" / "manifest.json").read_text())
    begun = manifest["started_from"]
    assert begun["run"] == identity(long_run())
    assert begun["at"] == until
    assert (long / begun["checkpoint"]).is_file()
    assert f"was at {until}, {until}/" in (tmp_path / "started" / "run.log").read_text()


def test_a_round_that_passes_several_points_keeps_them_all(tmp_path):
    budget = {"practice_window": 3, "keep_every": 3}
    agent = {"num_envs": 32, "steps_per_update": 160}
    runs.trained(long_run(agent=agent, budget=budget), tmp_path / "long")
    episodes = long_run().budget.episodes
    assert points(tmp_path / "long")[: episodes // 3] == list(range(3, episodes + 1, 3))
    kept = Checkpoints(tmp_path / "long" / "30", long_run(agent=agent, budget=budget)).load()
    assert kept.state["trainer"]["episodes"] > 32
    layer = {"agent": agent, "budget": budget}
    check_start(short_run("random", 30, **layer), tmp_path / "long" / "30", tmp_path)


def test_a_checkpoint_that_does_not_fit_is_refused(long, tmp_path):
    def refused(start, until=60, **named):
        run = short_run("random", until, **named)
        return runs.refusal(runs.trained, run, tmp_path / "r", start)

    allowed = f"RUN/60; {long} keeps 30, 60, 90, 120"
    message = refused(long / "45", until=45)
    assert f"{long}/45 holds no checkpoint; allowed: a run that is the same up to 45 epi" in message
    assert message.endswith(allowed.replace("/60", "/45"))
    assert "is a run at 90 episodes; allowed: a run that is the same up to" in refused(long / "90")
    assert not (tmp_path / "r").exists()
    assert "agent.gamma is 0.9 here" in refused(long / "60", agent={"gamma": 0.9})
    assert "budget.episodes is 60 here and 120 there" in refused(long)
    across = {"budget": {"practice_window": 50}}
    runs.trained(long_run(**across), tmp_path / "long")
    words = "a row of practice.csv continues past 60 episodes: budget.practice_window is 50"
    assert words in refused(tmp_path / "long/60", **across)
