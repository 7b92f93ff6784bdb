"""The workflow as a module of another one, in a folder with a configuration and nothing else."""

import pytest
import yaml

from tests.workflow.conftest import Project, copy_checkout, edited

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


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    return Elsewhere(tmp_path_factory.mktemp("module"))


@pytest.mark.slow
def test_a_grid_runs_there_and_leaves_the_checkout_alone(elsewhere):
    elsewhere.run("--until", "draw_practice")
    results = elsewhere.folder / "results/mine"
    assert (results / "tables/manifest.json").is_file()
    assert (results / "statistics/success.csv").is_file()
    assert next((results / "figures").glob("*/practice.png")).is_file()
    assert not (elsewhere.checkout / "results").exists()
    # Also with all of Snakemake's triggers, among them the words of commands.
    assert elsewhere.planned("--until", "draw_practice") == {}


STATISTIC = """
from analysis.statistics.registry import register_statistic
from magellan.samplers import SAMPLERS, register_sampler


@register_sampler("first_one")
def build(parts, settings):
    return SAMPLERS["random"].build(parts, settings)


@register_statistic("first_only")
def first_only(results):
    return results.tables["evaluation"].head()
"""
TWO = """
module first:
    snakefile: "CHECKOUT/workflow/Snakefile"
    config: {**MINE, "experiment": "first", "modules": ["mine.py"], "samplers": ["first_one"]}

use rule * from first as first_*

module second:
    snakefile: "CHECKOUT/workflow/Snakefile"
    config: {**MINE, "experiment": "second"}

use rule * from second as second_*
"""


def test_two_experiments_of_one_workflow_have_their_own_modules(elsewhere):
    """A statistic of the first was planned for the second, whose job then failed."""
    text = f"MINE = {yaml.safe_load(SMALLEST)}\n" + TWO.replace("CHECKOUT", str(elsewhere.checkout))
    (elsewhere.folder / "mine.py").write_text(STATISTIC)
    with edited(elsewhere.folder / "workflow/Snakefile", text):
        planned = elsewhere.planned("first_all", "second_all")
        assert planned["first_statistic_first_only"] == 1
        assert (
            planned["first_train"] == planned["second_train"] == planned["second_statistics"] == 1
        )
        assert "second_statistic_first_only" not in planned
    other = text.replace(
        '"experiment": "second"', '"experiment": "second", "samplers": ["first_one"]'
    )
    with edited(elsewhere.folder / "workflow/Snakefile", other):
        line = elsewhere.refused("-n", "second_all")
        assert line.startswith("error: samplers.0: 'first_one' is unknown; allowed: random, ")
