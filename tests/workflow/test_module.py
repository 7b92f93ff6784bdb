"""The workflow as a module of another one, in a folder with a configuration and nothing else."""

import pytest

from tests.workflow.conftest import Project, copy_checkout

SMALLEST = """
experiment: mine
preset: smoke
samplers: [random]
goal_spaces: [8-4-4-4-4]
seeds: [0]
analysis: {bootstrap_repetitions: 100}
"""
MODULE = """
configfile: "config/mine.yaml"

module magellan:
    snakefile: "%s/workflow/Snakefile"
    config: config

use rule * from magellan
"""


@pytest.mark.slow
def test_a_grid_runs_there_and_leaves_the_checkout_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")  # nothing says where the packages are
    mine, checkout = Project(tmp_path / "mine"), tmp_path / "their checkout"
    checkout.mkdir()
    copy_checkout(checkout)
    files = {"config/mine.yaml": SMALLEST, "workflow/Snakefile": MODULE % checkout}
    files["analysis/__init__.py"] = ""  # another project's package of this name
    for name, text in files.items():
        (mine / name).parent.mkdir(parents=True)
        (mine / name).write_text(text)
    call = ("--cores", "1", "--until", "draw_practice")
    mine.run(*call)
    for made in ("tables/manifest.json", "statistics/success.csv", "figures/*/practice.png"):
        assert list((mine / "results/mine").glob(made)), made
    assert not (checkout / "results").exists()
    assert mine.planned(*call) == {}
