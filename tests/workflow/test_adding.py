"""One of each from outside the package: the files of docs/extend.md.

A sampler with a constant of its own, an estimator, a world, a backend, variants, a statistic and a
figure, named in one experiment, from training to the report.
"""

import re
import subprocess
import sys

import pandas as pd
import pytest

from analysis import figures
from analysis.statistics import summaries
from analysis.statistics.summaries import STATISTICS
from analysis.tables import store
from analysis.tables.manifests import read_combined_manifest
from magellan.jobs.run import UNCHECKED
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.snippets import ROOT, write_files
from tests.workflow.conftest import Project, edited

pytestmark = pytest.mark.slow

DOCUMENTED = ROOT / "docs/extend.md"
CALL = ("--configfile", "mine.yaml")
PLACE = "results/mine/figures/30-10"
# Nobody knows how a sampler of one's own explores.
DRAWN = {*PLAIN_FIGURES, "forgetting"} - {"exploitation"}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The experiment of docs/extend.md, run with one call, with the model that it makes first."""
    project = Project.copied(tmp_path_factory.mktemp("mine"))
    write_files("docs/extend.md", project.folder)
    (command,) = re.findall(r"\n    python (-m magellan backbone .*)\n", DOCUMENTED.read_text())
    call = [sys.executable, *command.split()]
    subprocess.run(call, cwd=project.folder, check=True, timeout=300)
    project.run(*CALL)
    return project


def test_all_of_them_are_in_tables_statistics_and_figures(mine):
    manifest = read_combined_manifest(mine / "results/mine/tables")
    assert {(run["sampler"], run["variant"]) for run in manifest["runs"]} == {
        ("random", "plain"),
        ("sharp", "plain"),
        ("sharp", "soft"),
    }
    powers = {run["variant"]: run["counted"].get("sharp.power") for run in manifest["runs"]}
    assert powers == {"plain": None, "soft": 0.5}
    assert {run["counted"]["world"] for run in manifest["runs"]} == {"doors"}
    logs = [path.read_text() for path in (mine / "results/mine/logs/train").rglob("*.log")]
    assert len(logs) == len(manifest["runs"])
    assert all("timed: update_policy, " in log for log in logs)
    own_logs = [path.read_text() for path in (mine / "results/mine/runs").rglob("run.log")]
    assert len(own_logs) == len(logs)
    assert not any(UNCHECKED in log for log in own_logs)
    competence = pd.read_csv(mine / "results/mine/tables/competence.csv")
    assert set(competence["estimator"]) == {"counts"}
    # Also where its file is not at hand: the runs record the categories of their world.
    results = store.load(mine / "results/mine/tables")
    assert results.categories.names == ("closed", "locked")
    computed = summaries.compute(results)
    for name in DRAWN - {"forgetting"}:
        figures.draw(name, results, computed, "30-10")
    statistics = mine / "results/mine/statistics"
    assert {path.stem for path in statistics.iterdir()} == {*STATISTICS, "forgetting"}
    frame = pd.read_csv(statistics / "forgetting.csv")
    assert set(frame["category"]) == {"closed", "locked"}
    assert len(frame) == 2 * 2 * 3 * 2  # splits, categories, algorithms, seeds
    assert {path.name for path in (mine / PLACE).iterdir()} == {
        f"{name}.{end}" for name in DRAWN for end in ("png", "pdf")
    }
    assert mine.planned(*CALL) == {}


MADE = {
    "my_statistic.py": ("statistic_forgetting", "draw_forgetting", "summary"),
    "my_signal.py": (),
}


@pytest.mark.parametrize("path", MADE)
def test_an_edit_makes_anew_what_depends_on_it(mine, path):
    text = (mine / path).read_text()
    with edited(mine / path, f"{text}\n# edited\n", later=5):
        assert mine.planned(*CALL) == dict.fromkeys(MADE[path], 1)


def test_what_cannot_be_is_one_clear_line_before_anything_is_trained(mine):
    path = mine / "my_figure.py"
    text = path.read_text().replace('statistics=("forgetting",)', 'statistics=("remembering",)')
    with edited(path, text):
        line = mine.refused(*CALL, "--config", "seeds=[5]")
    assert "my_figure.py" in line
    assert "figure forgetting: statistics: 'remembering' is unknown" in line
    assert not list((mine / "results/mine/runs").rglob("seed5"))


def test_a_figure_that_fails_costs_no_other(mine):
    path = mine / "my_figure.py"
    broken = path.read_text().replace("    frame = ", "    raise KeyError('lost')\n    x = ")
    with edited(path, broken):
        done = mine.snakemake(*CALL, "--forcerun", "draw_practice", "draw_forgetting")
    assert done.returncode != 0
    lines = [line.strip() for line in done.stdout.splitlines() if "error: modules: " in line]
    assert lines, done.stdout
    assert "my_figure.py': figure forgetting failed (line 13: KeyError: 'lost')" in lines[0]
    assert (mine / PLACE / "practice.png").is_file()
    assert mine.planned(*CALL) == {"draw_forgetting": 1, "summary": 1}
