"""From finished (made-up) runs to figures, committed pictures, and what an edit makes anew."""

import base64
import shutil

import pytest

from analysis.figures import FIGURES
from analysis.report.finding import terminal
from tests.analysis import synthetic
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.workflow.conftest import Project, edited

pytestmark = pytest.mark.slow

DRAWN = {f"draw_{name}": 1 for name in PLAIN_FIGURES}
SPACE = synthetic.GOAL_SPACE


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    project = Project.copied(tmp_path_factory.mktemp("project"))
    declared = synthetic.experiment(preset="reference")
    synthetic.write_runs(project / "results/default", declared, episodes=4_000)
    project.printed = project.run()
    return project


def test_the_last_words_are_the_finding_and_where_to_go_on(analysed):
    summary = analysed.read_json("results/default/summary.json")
    end = analysed.printed.splitlines()
    lines = terminal(summary, "results/default", [])
    at = end.index(lines[0])
    assert end[at : at + 3] == lines
    assert end[at + 3].startswith("next: python -m analysis summary results/default ")
    assert end[at + 4].startswith("next: snakemake --report results/default/report.html ")
    assert all(line.startswith(("Complete log", "Elapsed")) for line in end[at + 5 :]), end[at:]


def test_finished_runs_become_tables_statistics_figures_and_a_report(analysed):
    assert analysed.planned() == {}
    page = (analysed / "results/default/summary.html").read_text()
    summary = analysed.read_json("results/default/summary.json")
    assert page.count('src="data:image/png;base64,') == len(PLAIN_FIGURES)
    figures = {path.name for path in (analysed / f"results/default/figures/{SPACE}").iterdir()}
    drawn = {f"{name}.{end}" for name in PLAIN_FIGURES for end in ("png", "pdf")}
    assert figures == drawn
    analysed.run("--report", "results/default/report.html")
    report = (analysed / "results/default/report.html").read_text()
    for sentence in (*summary["told"], *summary["untold"]):
        assert sentence in page
    assert base64.b64encode(page.encode()).decode() in report
    for name in PLAIN_FIGURES:
        spec, picture = FIGURES[name], analysed / f"results/default/figures/{SPACE}/{name}.png"
        assert base64.b64encode(picture.read_bytes()).decode() in report, name
        assert spec.label in report
        assert spec.section in report
    assert page.count("n = 2 seeds") >= len(PLAIN_FIGURES)
    assert "percentile" in page


EDITS = {
    "analysis/tables/store.py": {"combine": 1, "statistics": 1, "summary": 1, **DRAWN},
    "magellan/training/loop.py": {},
}


@pytest.mark.parametrize("path", EDITS)
def test_an_edit_makes_anew_what_depends_on_it_and_never_trains(analysed, path):
    text = (analysed / path).read_text()
    with edited(analysed / path, f"{text}\n# edited\n", later=5):
        assert analysed.planned() == EDITS[path]


def test_committed_pictures_are_redrawn_from_their_tables_alone(analysed):
    results = analysed / "results"
    folder = results / "reference/mine"
    shutil.copytree(results / "default/tables", folder)
    (folder / "calibration.png").write_bytes(b"")
    assert analysed.planned("figures") == {"figures": 1}
    analysed.run("figures")
    (drawn,) = folder.glob("*.p*")
    assert drawn.read_bytes() == (results / "default/figures" / SPACE / drawn.name).read_bytes()
