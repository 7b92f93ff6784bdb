import importlib.util
import json

import jsonschema
import pytest
import yaml

from magellan.config import experiment_schema, load_experiment
from tests.workflow.conftest import ROOT

FILES = sorted((ROOT / "config").glob("*.yaml"))


def test_the_schema_is_that_of_the_typed_configuration():
    stored = (ROOT / "workflow/schemas/config.schema.json").read_text()
    assert stored == json.dumps(experiment_schema(), indent=2) + "\n", (
        "out of date: python -m magellan schema > workflow/schemas/config.schema.json"
    )


def test_the_readme_tables_are_those_of_the_typed_configuration():
    path = ROOT / "workflow/scripts/describe_config.py"
    spec = importlib.util.spec_from_file_location("describe_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "config/README.md").read_text()
    assert "| `overrides` |" in text
    assert "| `learning_rate` |" in text
    assert module.updated(text) == text, f"out of date: python {path.relative_to(ROOT)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_config_files_fit_the_schema_and_say_what_they_are_for(path):
    text = path.read_text()
    values = yaml.safe_load(text)
    jsonschema.validate(values, experiment_schema())
    # results/reference is for what is committed: the study has a folder of its own.
    named = {"config": "default", "reference": "study"}
    assert values["experiment"] == named.get(path.stem, path.stem)
    opening = text.splitlines()[:4]
    assert opening[0].startswith("# ")
    assert any("Cost:" in line for line in opening)
    assert any("Start:" in line for line in opening)


def test_the_default_compares_four_samplers_with_two_seeds():
    experiment = load_experiment(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    assert sorted(experiment.samplers) == ["ek_online", "magellan", "online", "random"]
    assert len(experiment.seeds) >= 2


def test_the_paper_grid_has_its_goal_spaces_and_constants():
    values = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    assert values["goal_spaces"] == ["25k", "50k", "100k"]
    assert values["seeds"] == list(range(8))
    assert values["preset"] == "paper"


def test_the_workflow_catalog_finds_what_it_asks_of_a_standardized_workflow():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["report"] is True
    assert usage["software-stack-deployment"]["conda"] is True
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    assert "environment.yml" in rules  # the claim about conda
    for path in ("workflow/Snakefile", "config/README.md", "config/config.yaml", "LICENSE"):
        assert (ROOT / path).is_file(), path
