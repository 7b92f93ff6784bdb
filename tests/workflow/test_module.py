"""The workflow as a module of another one, in a folder with a configuration and nothing else."""

import os
import re

import pytest

from tests.workflow.conftest import Project, snakemake, the_error

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


class Elsewhere:
    """A folder of somebody's own whose workflow takes that of a checkout as its module."""

    def __init__(self, folder):
        self.folder, self.checkout = folder / "mine", folder / "their checkout"
        self.checkout.mkdir()
        Project(self.checkout)
        for name, text in (
            ("config/mine.yaml", SMALLEST),
            ("workflow/Snakefile", MODULE % self.checkout),
        ):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def snakemake(self, *arguments):
        """As its user calls it, where nothing says where the packages are."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return snakemake(self.folder, environment, "--cores", "1", *arguments, timeout=300)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    return Elsewhere(tmp_path_factory.mktemp("module"))


def test_a_grid_runs_there_and_leaves_the_checkout_alone(elsewhere):
    done = elsewhere.snakemake("--until", "statistics", "coverage")
    assert done.returncode == 0, done.stdout
    results = elsewhere.folder / "results/mine"
    assert (results / "tables/manifest.json").is_file()
    assert (results / "statistics/success.csv").is_file()
    assert (results / "figures/coverage.html").is_file()
    assert not (elsewhere.checkout / "results").exists()
    # Also with all of Snakemake's triggers, among them the words of commands.
    again = elsewhere.snakemake("-n", "--until", "statistics", "coverage")
    assert re.findall(r"^total +(\d+)$", again.stdout, re.MULTILINE)[-1:] == ["0"], again.stdout


def test_bad_input_of_a_module_is_one_clear_line(elsewhere):
    line = the_error(elsewhere.snakemake("-n", "--config", "samplers=[nobody]"))
    assert line.startswith("error: samplers.0: 'nobody' is unknown; allowed: random, ")
