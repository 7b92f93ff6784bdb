"""A run breaks down: refused by default, a report on the rest when asked, then the whole grid."""

import re

import pytest

from analysis.figures import applicable
from analysis.tables.grid import Algorithm
from tests.analysis import synthetic
from tests.workflow.conftest import Project, put_stand_in

pytestmark = pytest.mark.slow

SPACE = synthetic.GOAL_SPACE
SAMPLERS = ("random", "online")
DRAWN = applicable(
    [Algorithm(name, "default") for name in SAMPLERS], synthetic.experiment(samplers=SAMPLERS)
)
BROKEN = f"online/{SPACE}/seed1"
PARTIAL = ("--config", "allow_incomplete=true")
FIGURES = f"results/default/figures/{SPACE}"


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """A project in which one of four runs has failed, and what the call printed."""
    project = Project.copied(tmp_path_factory.mktemp("project"))
    put_stand_in(project)
    config = (project / "config/config.yaml").read_text()
    config = re.sub("samplers: .*", f"samplers: [{', '.join(SAMPLERS)}]", config)
    (project / "config/config.yaml").write_text(config)
    (project / "broken").write_text(BROKEN)
    return project, project.snakemake()


def test_by_default_missing_runs_are_named_with_reason_and_log(failed):
    project, done = failed
    assert done.returncode != 0
    _, _, rest = done.stdout.partition("1 of 4 runs are missing, so there is no report:\n")
    lines = rest.splitlines()
    name = project.folder_of(BROKEN).name
    assert lines[0].strip() == (
        f"sampler 'online', variant 'default', goal space '{SPACE}', seed 1: "
        f"RuntimeError: out of luck (results/default/logs/train/{BROKEN}/{name}.log)"
    )
    assert "allow_incomplete=true" in lines[1]
    assert not (project / "results/default/tables").exists()
    assert [path.name for path in project.folder_of(BROKEN).iterdir()] == ["checkpoint"]
    # Progress reaches the person who watches, and the log keeps it with the reason.
    assert f"random/{SPACE}/seed0: half way" in done.stdout
    log = (project / f"results/default/logs/train/{BROKEN}/{name}.log").read_text()
    assert "half way, resume True" in log
    assert "out of luck" in log


def test_when_asked_to_the_complete_runs_make_a_report_and_none_is_started(failed):
    project, _ = failed
    text = project.run(*PARTIAL)
    assert "the report is made of 3 complete runs, none is started; left out:" in text
    assert "seed 1: RuntimeError: out of luck" in text
    assert "half way" not in text
    assert project.planned(*PARTIAL) == {}
    manifest = project.read_json("results/default/tables/manifest.json")
    assert len(manifest["runs"]) == 3
    (entry,) = manifest["missing"]
    assert (entry["sampler"], entry["seed"]) == ("online", 1)
    assert entry["log"] == f"logs/train/{BROKEN}/{project.folder_of(BROKEN).name}.log"
    names = {path.name for path in (project / FIGURES).iterdir()}
    drawn = {f"{name}.{end}" for name in DRAWN for end in ("png", "pdf")}
    assert names == drawn
    page = (project / "results/default/summary.html").read_text()
    assert "3 of 4 declared runs are complete" in page
    assert "out of luck" in page
    assert len(re.findall("n = 1 to 2 seeds", page)) >= len(DRAWN)
    assert "n = 2 seeds" not in page


def test_the_missing_run_completes_the_grid_and_nothing_else_is_trained(failed):
    project, _ = failed
    (project / "broken").unlink()
    text = project.run("--until", "combine")
    assert re.findall(r"(\S+): half way", text) == [BROKEN]
    manifest = project.read_json("results/default/tables/manifest.json")
    assert len(manifest["runs"]) == 4
    assert manifest["missing"] == []
    planned = project.planned()
    assert planned["draw_practice"] == 1
    assert not {"train", "combine"} & planned.keys()
    # A complete grid is the same with and without leave to be incomplete.
    assert project.planned(*PARTIAL) == planned
