"""Training jobs: a failure among them, and the smoke experiment from nothing to a report."""

import json

import pytest

from analysis.tables.manifests import read_combined_manifest
from magellan.jobs.provenance import Attempts
from tests.analysis import synthetic
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.workflow.conftest import Project, put_stand_in

pytestmark = pytest.mark.slow

GOAL_SPACE = synthetic.GOAL_SPACE
BROKEN, HOPELESS = f"online/{GOAL_SPACE}/seed1", f"random/{GOAL_SPACE}/seed0"
SMOKE = ("--configfile", "config/smoke.yaml")


def test_retries_of_a_run_that_can_never_succeed_cost_no_work(project):
    put_stand_in(project)
    (project / "broken").write_text(BROKEN)
    (project / "hopeless").write_text(HOPELESS)
    settings = ("--retries", "2", "--until", "train", "--config", "samplers=[random,online]")
    done = project.snakemake(*settings)
    assert done.returncode != 0
    assert done.stdout.count("Trying to restart job") == 4, done.stdout
    run = project.folder_of(HOPELESS)
    assert len(Attempts(run, run.name).read()) == 1
    assert done.stdout.count("\nerror: critic_loss is nan\n") >= 3
    # The next call tries it again, for a person may have mended it.
    (project / "hopeless").unlink()
    done = project.snakemake(*settings)
    assert (run / "manifest.json").is_file(), done.stdout


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    project = Project.copied(tmp_path_factory.mktemp("smoke"))
    project.run(*SMOKE)
    return project


def test_the_smoke_experiment_runs_from_nothing_to_figures(smoke):
    runs = read_combined_manifest(smoke / "results/smoke/tables")["runs"]
    assert [(run["sampler"], run["seed"]) for run in runs] == [
        (sampler, seed) for sampler in synthetic.SAMPLERS for seed in (0, 1)
    ]
    assert {run["status"] for run in runs} == {"complete"}
    for name in PLAIN_FIGURES:
        (picture,) = (smoke / "results/smoke/figures").rglob(f"{name}.png")
        assert picture.stat().st_size > 10_000
    assert smoke.planned(*SMOKE) == {}


def test_a_changed_value_trains_again(smoke):
    overrides = "overrides={agent: {gamma: 0.9}}"
    assert smoke.planned(*SMOKE, "--config", overrides)["train"] == 8
    # What was made before stays where it is, and is there again when the value is back.
    smoke.run(*SMOKE, "--config", "samplers=[random]", "seeds=[0]", overrides, "--until", "train")
    manifests = sorted((smoke / "results/smoke/runs/random").rglob("seed0/*/manifest.json"))
    gammas = {json.loads(path.read_text())["config"]["agent"]["gamma"] for path in manifests}
    assert gammas == {0.9, 0.99}
    assert "train" not in smoke.planned(*SMOKE)
