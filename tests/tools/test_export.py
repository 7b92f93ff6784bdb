"""An agent's folder holds the agent: `peft` and the card's own code predict the same."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from magellan.backends import CURRENT, DELAYED
from magellan.core.codec import stack
from magellan.jobs.export import agent_files, write_agent
from magellan.jobs.provenance import Origin
from tests.agent.tiny import CANDIDATES, PROMPTS, close, in_float64, write
from tests.tools.conftest import CRITIC, config_of, make, state_of

ORIGIN = Origin("1.2.3+abc", {"torch": "9.9"}, {"model": "zoo-mini", "sha256": "ab" * 32})
FOLDER = Path("agent")


@pytest.mark.parametrize(
    ("model", "score", "targets", "mode", "reads"),
    [
        ("zoo-mini", "logit_sum", "attention_qv", "merged", "own"),
        ("zoo-mini", "log_prob_sum", "all_linear", "per_token", "ignored"),
        ("t5", "logit_sum", "attention_qv", "merged", "policy"),
        ("t5", "log_prob_sum", "all_linear", "per_token", "own"),
    ],
)
def test_the_code_on_the_card_predicts_what_the_agent_predicts(
    model, score, targets, mode, reads, tmp_path, monkeypatch
):
    """Run in another folder than the one where the run named its model and the agent was left."""
    for folder in (tmp_path / "elsewhere", tmp_path / "there"):
        folder.mkdir()
        monkeypatch.chdir(folder)
    if model == "t5":
        write(Path(model), model)
    config = config_of(model, score, reads=reads, lora_targets=targets, lora_mode=mode)
    backend = make(config)
    write_agent(FOLDER, agent_files(config, state_of(backend), ORIGIN, FOLDER))
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


def test_of_a_run_with_phases_the_last_one_counts():
    config = config_of("zoo-mini", phases=[{"until": 60}, {"goal_space": "10-9-8-7-6"}])
    before = [1, 7, 70, 60, "train", "grasp", 4, 0.75, *CRITIC]
    rows = [before, [2, 7, 70, 60, "train", "grow_plant", 4, 0.5, *CRITIC]]
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
