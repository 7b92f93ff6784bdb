"""Training jobs: a failure among them, and the smoke experiment from nothing to a report."""

import base64
import json
import re

import pytest
import yaml

from analysis.figures import FIGURES
from magellan.jobs.attempts import Attempts
from tests.analysis import synthetic
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.snippets import write_files
from tests.workflow.conftest import Project, put_stand_in

pytestmark = pytest.mark.slow

GOAL_SPACE = synthetic.GOAL_SPACE
BROKEN, HOPELESS = f"online/{GOAL_SPACE}/seed1", f"random/{GOAL_SPACE}/seed0"
SMOKE = ("--configfile", "config/smoke.yaml")


def test_a_failed_run_leaves_the_others_and_its_own_checkpoint(project):
    put_stand_in(project)
    (project / "broken").write_text(BROKEN)
    settings = ("--config", "samplers=[random,online]")
    done = project.snakemake(*settings)
    assert done.returncode != 0
    runs = project / "results/default/runs"
    assert len(list(runs.rglob("manifest.json"))) == 3
    broken = project.folder_of(BROKEN)
    assert [path.name for path in broken.iterdir()] == ["checkpoint"]
    # Progress reaches the person who watches, and the log keeps it with the reason.
    assert f"random/{GOAL_SPACE}/seed0: half way" in done.stdout
    log = (project / f"results/default/logs/train/{BROKEN}/{broken.name}.log").read_text()
    assert "half way, resume True" in log
    assert "out of luck" in log
    assert "out of luck" in done.stdout
    (project / "broken").unlink()
    assert project.planned(*settings)["train"] == 1
    # Another value in the configuration makes every run anew; so does one in the preset.
    assert project.planned(*settings, "overrides={agent: {gamma: 0.9}}")["train"] == 4


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
    """The smoke experiment, run with one call, and in its grid a user's own sampler.

    Its file and that of its estimator are those of docs/extend.md; it has two variants.
    """
    project = Project(tmp_path_factory.mktemp("smoke"))
    write_files("docs/extend.md", project.folder)
    path = project / "config/smoke.yaml"
    experiment = yaml.safe_load(path.read_text())
    experiment["samplers"].insert(0, "sharp")
    experiment["modules"] = ["../my_estimator.py", "../my_sampler.py"]  # beside config/
    experiment["variants"] = {"plain": {}, "soft": {"sharp": {"power": 0.5}}}
    experiment["overrides"] = {"observers": ["counts", "per_goal"]}
    path.write_text(yaml.safe_dump(experiment))
    project.run(*SMOKE)
    return project


def test_the_smoke_experiment_runs_from_nothing_to_figures(smoke):
    manifest = smoke.read_json("results/smoke/tables/manifest.json")
    assert len(manifest["runs"]) == 12
    assert {(run["sampler"], run["variant"]) for run in manifest["runs"]} == {
        ("sharp", "plain"),
        ("sharp", "soft"),
        *((sampler, "plain") for sampler in ("random", "online", "ek_online", "magellan")),
    }
    assert {run["status"] for run in manifest["runs"]} == {"complete"}
    for name in PLAIN_FIGURES:
        (picture,) = (smoke / "results/smoke/figures").rglob(f"{name}.png")
        assert picture.stat().st_size > 10_000
    assert smoke.planned(*SMOKE) == {}
    benchmarks = list((smoke / "results/smoke/benchmarks").rglob("*.tsv"))
    assert len(benchmarks) == 12
    competence = (smoke / "results/smoke/tables/competence.csv").read_text()
    for start in ("sharp,soft,40-20-12-8-8,1,", "random,plain,40-20-12-8-8,0,"):
        lines = [line for line in competence.splitlines() if line.startswith(start)]
        assert {line.split(",")[7] for line in lines} == {"counts", "per_goal"}


def test_changed_code_trains_nothing(smoke):
    path = smoke / "magellan/training/loop.py"
    path.write_text(path.read_text() + "\n# edited\n")
    assert smoke.planned(*SMOKE) == {}


def test_the_report_holds_every_figure_with_its_caption(smoke):
    target = "results/smoke/report.html"
    smoke.run(*SMOKE, "--report", target)
    page = (smoke / target).read_text()
    for name in PLAIN_FIGURES:
        spec = FIGURES[name]
        picture = next((smoke / "results/smoke/figures").rglob(f"{name}.png")).read_bytes()
        assert base64.b64encode(picture).decode() in page, name
        assert spec.label in page
        assert spec.section in page
    captions = len(re.findall(r"n = 2 seeds", page))
    assert captions >= len(PLAIN_FIGURES)
    assert "snakemake.params" not in page
    assert "snakemake.wildcards" not in page
    assert "percentile" in page


def test_a_changed_value_trains_again(smoke):
    overrides = "overrides={agent: {gamma: 0.9}}"
    assert smoke.planned(*SMOKE, "--config", overrides)["train"] == 12
    # What was made before stays where it is, and is there again when the value is back.
    smoke.run(*SMOKE, "--config", "samplers=[random]", "seeds=[0]", overrides, "--until", "train")
    manifests = sorted((smoke / "results/smoke/runs/random").rglob("seed0/*/manifest.json"))
    gammas = {json.loads(path.read_text())["config"]["agent"]["gamma"] for path in manifests}
    assert gammas == {0.9, 0.99}
    assert "train" not in smoke.planned(*SMOKE)
