"""Training jobs: a failure among them, and the smoke experiment from nothing to a report.

What an edit makes anew, and committed pictures, are seen in the folder of the smoke experiment.
"""

import base64
import json
import shutil

import pytest

from analysis.figures import FIGURES
from analysis.report.finding import terminal
from analysis.tables.manifests import read_combined_manifest
from magellan.jobs.provenance import Attempts
from tests.analysis import synthetic
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.workflow.conftest import Project, edited, put_stand_in

pytestmark = pytest.mark.slow

GOAL_SPACE = synthetic.GOAL_SPACE
BROKEN, HOPELESS = f"online/{GOAL_SPACE}/seed1", f"random/{GOAL_SPACE}/seed0"
SMOKE, MADE = ("--configfile", "config/smoke.yaml"), "results/smoke"
SUMMARY = f"{MADE}/summary.json"


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
    project.printed = project.run(*SMOKE)
    return project


def test_the_smoke_experiment_runs_from_nothing_to_figures_and_a_report(smoke):
    runs = read_combined_manifest(smoke / f"{MADE}/tables")["runs"]
    assert [(run["sampler"], run["seed"]) for run in runs] == [
        (sampler, seed) for sampler in synthetic.SAMPLERS for seed in (0, 1)
    ]
    assert {run["status"] for run in runs} == {"complete"}
    assert smoke.planned(*SMOKE) == {}
    (pictures,) = (smoke / f"{MADE}/figures").iterdir()
    drawn = {f"{name}.{end}" for name in PLAIN_FIGURES for end in ("png", "pdf")}
    assert {path.name for path in pictures.iterdir()} == drawn
    page, summary = (smoke / f"{MADE}/summary.html").read_text(), smoke.read_json(SUMMARY)
    assert page.count('src="data:image/png;base64,') == len(PLAIN_FIGURES)
    assert page.count("n = 2 seeds") >= len(PLAIN_FIGURES)
    assert "percentile" in page
    smoke.run(*SMOKE, "--report", f"{MADE}/report.html")
    report = (smoke / f"{MADE}/report.html").read_text()
    for sentence in (*summary["told"], *summary["untold"]):
        assert sentence in page
    assert base64.b64encode(page.encode()).decode() in report
    for name in PLAIN_FIGURES:
        spec, picture = FIGURES[name], (pictures / f"{name}.png").read_bytes()
        assert len(picture) > 10_000
        assert base64.b64encode(picture).decode() in report, name
        assert spec.label in report
        assert spec.section in report


def test_the_last_words_are_the_finding_and_where_to_go_on(smoke):
    end, lines = smoke.printed.splitlines(), terminal(smoke.read_json(SUMMARY), MADE, [])
    at = end.index(lines[0])
    assert end[at : at + len(lines)] == lines
    summarise, report, *rest = end[at + len(lines) :]
    assert summarise.startswith(f"next: python -m analysis summary {MADE} ")
    assert report.startswith(f"next: snakemake {' '.join(SMOKE)} --report {MADE}/report.html ")
    assert all(line.startswith(("Complete log", "Elapsed")) for line in rest), rest


EDITS = {
    "analysis/tables/store.py": {
        **dict.fromkeys(("combine", "statistics", "summary"), 1),
        **{f"draw_{name}": 1 for name in PLAIN_FIGURES},
    },
    "magellan/training/loop.py": {},
}


@pytest.mark.parametrize("path", EDITS)
def test_an_edit_makes_anew_what_depends_on_it_and_never_trains(smoke, path):
    text = (smoke / path).read_text()
    with edited(smoke / path, f"{text}\n# edited\n", later=5):
        assert smoke.planned(*SMOKE) == EDITS[path]


def test_committed_pictures_are_redrawn_from_their_tables_alone(smoke):
    folder = smoke / "results/reference/mine"
    shutil.copytree(smoke / f"{MADE}/tables", folder)
    (folder / "calibration.png").write_bytes(b"")
    assert smoke.planned("figures") == {"figures": 1}
    smoke.run("figures")
    (drawn,) = folder.glob("*.p*")
    (committed,) = (smoke / f"{MADE}/figures").glob(f"*/{drawn.name}")
    assert drawn.read_bytes() == committed.read_bytes()


def test_a_changed_value_trains_again(smoke):
    overrides = "overrides={agent: {gamma: 0.9}}"
    assert smoke.planned(*SMOKE, "--config", overrides)["train"] == 8
    # What was made before stays where it is, and is there again when the value is back.
    smoke.run(*SMOKE, "--config", "samplers=[random]", "seeds=[0]", overrides, "--until", "train")
    manifests = sorted((smoke / "results/smoke/runs/random").rglob("seed0/*/manifest.json"))
    gammas = {json.loads(path.read_text())["config"]["agent"]["gamma"] for path in manifests}
    assert gammas == {0.9, 0.99}
    assert "train" not in smoke.planned(*SMOKE)
