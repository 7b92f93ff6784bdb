import json

import jsonschema
import pytest
import yaml

from magellan.config import flat_keys, grid, load_experiment, resolve_run
from magellan.config.resolve import experiment_schema
from tests.snippets import ROOT

FOLDERS = (ROOT / "config", ROOT / "config" / "studies")
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.yaml"))


def values_of(name):
    return yaml.safe_load((ROOT / f"config/{name}.yaml").read_text())


def test_the_schema_is_that_of_the_typed_configuration():
    stored = (ROOT / "workflow/schemas/config.schema.json").read_text()
    assert stored == json.dumps(experiment_schema(), indent=2) + "\n", (
        "out of date: python -m magellan schema > workflow/schemas/config.schema.json"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_config_files_fit_the_schema_and_state_their_purpose(path):
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


def test_the_paper_grid_has_its_goal_space_and_constants():
    values = values_of("paper")
    assert (values["goal_spaces"], values["preset"]) == (["25k"], "paper")
    assert values["seeds"] == list(range(8))
    run = resolve_run("paper", [values["overrides"]])
    assert (run.budget.episodes, run.backbone.model) == (500_000, "google/flan-t5-base")
    assert (run.agent.temperature, run.agent.target_entropy) == ("target_entropy", -0.125)
    estimator = run.section("competence")
    assert (estimator.delay, estimator.refresh, estimator.update_every) == (3_200, 32, 32)


def test_the_small_paper_differs_in_the_model_the_score_and_the_goals_alone():
    paper, small = values_of("paper"), values_of("paper_small")
    variants = values_of("studies/paper_small_variants")
    assert variants["overrides"] == small["overrides"]
    alike = ("preset", "samplers", "goal_spaces", "seeds")
    assert [small[key] for key in alike] == [paper[key] for key in alike]
    theirs, ours = paper["overrides"], small["overrides"]
    assert ours.pop("backbone") == {"model": "zoo-reader", "lora_mode": "merged"}
    assert ours.pop("goals") == {"seed": "run"}
    assert ours["agent"].pop("score") == "log_prob_sum"
    del theirs["budget"], theirs["backend"]
    assert ours == theirs


@pytest.mark.parametrize("name", ["paper_estimation", "paper_ablation", "paper_evolving"])
def test_the_papers_other_experiments_have_its_constants(name):
    """Only lengths, and who watches or reads, are their own."""
    paper, other = values_of("paper"), values_of(name)
    assert other["preset"] == "paper"
    constants, expected = (
        {**values["overrides"], "budget": None, "observers": None} for values in (other, paper)
    )
    assert constants == expected


def test_the_ablation_has_the_four_architectures_and_shares_the_first_with_the_papers_runs():
    paper, ablation = (load_experiment(values_of(name)) for name in ("paper", "paper_ablation"))
    runs = grid(ablation)
    adapters = [run.config.section("competence").adapter for run in runs]
    assert {name: adapters.count(name) for name in adapters} == dict.fromkeys(
        ("own", "shared", "policy", "frozen"), 8
    )
    trained = {run.identity for run in grid(paper)}
    assert {
        run.config.section("competence").adapter for run in runs if run.identity in trained
    } == {"own"}


def test_the_released_code_has_every_switch():
    """DEVIATIONS.md names the switches of defects; the file sets each of them in some variant."""
    values = values_of("paper_as_released")
    layers = [[values["overrides"], layer] for layer in values["variants"].values()]
    public, switching = (resolve_run("paper", pair) for pair in layers)
    assert public.section("competence").adapter == "ignored"
    assert (public.agent.target_adapter, public.agent.critic_trains_adapter) == ("policy", True)
    assert switching.section("competence").adapter == "own"
    assert (switching.agent.target_adapter, switching.agent.critic_trains_adapter) == ("own", False)
    for run in (public, switching):
        assert (run.agent.next_candidates, run.agent.temperature) == ("current", "released")
        assert (run.agent.target_init, run.agent.score) == ("random", "logit_sum")
        assert run.section("expert_buckets").drop_standing_starts
        assert run.section("competence").delay // run.section("competence").refresh == 3


def test_every_key_in_which_the_presets_differ_has_its_row():
    """But for those that say how often something is written down."""
    text = (ROOT / "DEVIATIONS.md").read_text()
    paper, own = (flat_keys(resolve_run(name, []).model_dump()) for name in ("paper", "reference"))
    recorded = {"preset", "budget.practice_window", "budget.record_every"}
    recorded |= {"budget.checkpoint_seconds"}
    different = {key for key in paper if paper[key] != own[key]} - recorded
    assert len(different) > 15
    assert {key for key in different if f"`{key}`" not in text and f"`{key}:" not in text} == set()


def test_who_takes_the_rules_alone_is_told_what_the_profile_says_of_making_anew():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    profile = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())
    triggers = " ".join(profile["rerun-triggers"])
    assert f"--rerun-triggers {triggers}" in usage["mandatory-flags"]["flags"]
