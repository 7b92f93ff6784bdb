"""An agent's folder holds the agent: `peft` and the card's own code predict the same."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from peft import AutoPeftModelForCausalLM

from magellan.backends import CURRENT, DELAYED
from magellan.core.codec import stack
from magellan.core.errors import StorageError
from magellan.jobs import export
from magellan.jobs.export import _adapters_and_heads, agent_files, write_agent
from magellan.jobs.provenance import Origin
from magellan.model.files import check_backbone
from tests.agent.tiny import CANDIDATES, PROMPTS, close, in_float64, write
from tests.tools.agents import CRITIC, config_of, make, state_of

ORIGIN = Origin("1.2.3+abc", {"torch": "9.9"}, {"model": "zoo-mini", "sha256": "ab" * 32})
FOLDER = Path("agent")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of the language models by name."""
    folders = {}
    for family in ("t5", "gpt2"):
        folders[family] = str(tmp_path_factory.mktemp(family))
        write(folders[family], family)
    return {"zoo-mini": "zoo-mini", **folders}


def exported(folder, config):
    """A backend, and the folder with its agent."""
    backend = make(config)
    write_agent(folder, agent_files(config, state_of(backend), ORIGIN, folder))
    return backend


@pytest.mark.parametrize(
    ("score", "targets", "mode"),
    [("logit_sum", "attention_qv", "merged"), ("log_prob_sum", "all_linear", "per_token")],
)
@pytest.mark.parametrize("model", ["zoo-mini", "t5", "gpt2"])
def test_the_code_on_the_card_predicts_what_the_agent_predicts(
    models, model, score, targets, mode, tmp_path, monkeypatch
):
    """Run in another folder than the one where the run named its model and the agent was left."""
    (tmp_path / "there").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    if model != "zoo-mini":
        Path("my-model").symlink_to(models[model])
    name = "zoo-mini" if model == "zoo-mini" else "my-model"
    config = config_of(name, score, lora_targets=targets, lora_mode=mode)
    backend = exported(Path("agent"), config)
    card = Path("agent/README.md").read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert not re.search("^(from|import) magellan", code, re.MULTILINE)  # not there elsewhere
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    packed = backend.codec.pack(PROMPTS, CANDIDATES)
    prompts = stack(backend.codec.pack(PROMPTS, [()] * len(PROMPTS)))

    def read():
        estimates = backend.competence(prompts, (CURRENT, DELAYED))
        return backend.probabilities(packed), backend.values(packed), estimates

    expected = read()
    with in_float64(backend):
        exact = read()
    found = [np.zeros_like(values) for values in exact]
    for row, (prompt, actions) in enumerate(zip(PROMPTS, CANDIDATES, strict=True)):
        for values, judged in zip(found, names["judge"](prompt, actions), strict=False):
            values[row, : len(actions)] = judged
        estimators = ("competence", "competence_delayed")
        found[2][:, row] = [names["competence"](prompt, name) for name in estimators]
    assert np.abs(np.subtract(*exact[2])).min() > 1e-3
    for values in zip(found, expected, exact, strict=True):
        close(*values)


def test_the_adapter_names_its_model_and_its_settings(tmp_path):
    exported(tmp_path / "agent", config_of("zoo-mini", lora_targets="attention_qv"))
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "agent/policy")
    assert model.peft_config["default"].r == 4
    config = json.loads((tmp_path / "agent/policy/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(check_backbone("zoo-mini"))
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (4, 6.0, "CAUSAL_LM")
    assert {name.rpartition(".")[2] for name in config["target_modules"]} == {"q_proj", "v_proj"}


def card_of(config, state):
    return agent_files(config, state, ORIGIN, FOLDER)["README.md"].decode()


def test_the_card_describes_the_training():
    config = config_of("zoo-mini")
    state = state_of(make(config))
    rows = [*state["record"]["tables"]["evaluation"]]
    rows.append([7, 70, 20, "train", "a|\x1b[2J\n# b", 4, 0.5, *CRITIC])
    state["record"] = {"tables": {"evaluation": rows}}
    _, front, text = card_of(config, state).split("---\n", 2)
    assert "base_model" not in yaml.safe_load(front)  # a hub has none of that name
    assert "| language model | `zoo-mini` |" in text
    assert "| grasp | 0.75 (n = 4) | 0.33 (n = 3) |" in text
    assert r"| a\|\x1b[2J\n# b | 0.50 (n = 4) |" in text
    assert "0.25" not in text  # an earlier evaluation
    assert "| budget | 20 of 120 episodes |" in text
    assert "**not complete**" in text
    assert "ab" * 32 in text
    assert "magellan-bench 1.2.3+abc; torch 9.9" in text
    complete = {**state, "next_evaluation": config.budget.end + 1}
    assert "not complete" not in card_of(config, complete)


def test_an_agent_without_an_estimator_of_its_own_has_none():
    config = config_of("zoo-mini")
    state = state_of(make(config))
    del state["backend"]["competence"]
    files = agent_files(config, state, ORIGIN, FOLDER)
    assert {name.partition("/")[0] for name in files} == {
        *("policy", "critic_target", "heads.safetensors", "README.md")
    }
    assert "competence" not in files["README.md"].decode()


def test_of_a_run_with_phases_the_last_one_counts():
    config = config_of("zoo-mini", phases=[{"until": 60}, {"goal_space": "10-9-8-7-6"}])
    rows = [
        [1, 7, 70, 60, "train", "grasp", 4, 0.75, *CRITIC],
        [2, 7, 70, 60, "train", "grow_plant", 4, 0.5, *CRITIC],
    ]
    state = {**state_of(make(config)), "phase": 2, "next_evaluation": 120}
    state["record"] = {"tables": {"evaluation": rows}}
    card = card_of(config, state)
    assert "| grow_plant | 0.50 (n = 4) |  |" in card
    assert "0.75" not in card
    assert "40-20-10-5-5 (training goals, drawn with seed 0), then 10-9-8-7-6 (" in card
    assert "not complete" in card
    state["next_evaluation"] = 121
    assert "not complete" in card_of(config, {**state, "phase": 1})
    assert "not complete" not in card_of(config, state)


def test_a_disk_that_is_full_leaves_nothing(tmp_path, monkeypatch):
    files = {"policy/a": b"1", "README.md": b"2"}
    written = []

    def full(path, content):
        written.append(path)
        if len(written) == 2:
            raise StorageError("full")

    monkeypatch.setattr(export, "write_atomically", full)
    with pytest.raises(StorageError, match="full"):
        write_agent(tmp_path / "agent", files)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reads", "now", "delayed"),
    [("own", "learnt", "kept"), ("policy", "learnt", "kept"), ("ignored", "acting", "acting")],
)
def test_files_hold_the_adapters_that_predict(reads, now, delayed):
    names = ("acting", "judging", "q", "q then", "learnt", "p", "kept", "p then")
    values = {name: {"weight": np.full(2, at)} for at, name in enumerate(names)}
    state = {
        "sac": {
            "adapters": {"policy": values["acting"], "critic_target": values["judging"]},
            "critic": values["q"],
            "target": values["q then"],
        },
        "competence": {
            "adapter": values["learnt"],
            "head": values["p"],
            "snapshots": {"0": {"adapter": values["kept"], "head": values["p then"]}},
        },
    }
    adapters, heads = _adapters_and_heads(state, reads)
    assert adapters["policy"] is values["acting"]
    assert adapters["critic_target"] is values["judging"]
    assert adapters["competence"] is values[now]
    assert adapters["competence_delayed"] is values[delayed]
    assert heads["competence"] is values["p"]
    assert heads["competence_delayed"] is values["p then"]
