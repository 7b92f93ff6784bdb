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


class Elsewhere(Project):
    """A folder of somebody's own whose workflow takes that of a checkout as its module."""

    def __init__(self, folder):
        self.folder, self.checkout = folder / "mine", folder / "their checkout"
        self.checkout.mkdir()
        copy_checkout(self.checkout)
        for name, text in (
            ("config/mine.yaml", SMALLEST),
            ("workflow/Snakefile", MODULE % self.checkout),
        ):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def snakemake(self, *arguments, **options):
        """As its user calls it, where nothing says where the packages are."""
        environment = {"PYTHONPATH": ""}
        return super().snakemake("--cores", "1", *arguments, environment=environment, **options)


@pytest.mark.slow
def test_a_grid_runs_there_and_leaves_the_checkout_alone(tmp_path):
    elsewhere = Elsewhere(tmp_path)
    elsewhere.run("--until", "draw_practice")
    results = elsewhere.folder / "results/mine"
    assert (results / "tables/manifest.json").is_file()
    assert (results / "statistics/success.csv").is_file()
    assert next((results / "figures").glob("*/practice.png")).is_file()
    assert not (elsewhere.checkout / "results").exists()
    assert elsewhere.planned("--until", "draw_practice") == {}
