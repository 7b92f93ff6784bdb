"""Runs in worlds without a committed model train, and resume from their state."""

import pytest

from magellan.config import resolve_run
from magellan.pretraining import own_words
from magellan.training.answers import make_trainer
from magellan.worlds import WORLDS
from tests.runs import finish

RUNS = {
    "craft": {"goal_space": "40-20-10-5-5", "budget": {"episodes": 60}},
    "simulated": {
        "goal_space": "60-60-20-132-132",
        "observers": ["expert_buckets"],
        "budget": {"episodes": 400, "evaluate_every": 200},
    },
    "digits": {
        "goal_space": "8-8-8-4-4-2-2",
        "grpo": {"prompts": 3, "answers": 4, "gate": "spread"},
        "observers": ["expert_buckets"],
        "competence": {"refresh": 2, "delay": 4},
        "budget": {"steps": 1_000, "evaluate_every": 500, "record_outcomes": True},
    },
}


@pytest.mark.parametrize("sampler", ["ek_online", "magellan", "plr"])
@pytest.mark.parametrize("world", RUNS)
def test_runs_train_and_resume(world, sampler, tmp_path):
    own_words.write(WORLDS[world], tmp_path / "model")
    layer = {"world": world, "sampler": sampler, "backbone": {"model": str(tmp_path / "model")}}
    config = resolve_run("grpo" if world == "digits" else "smoke", [layer, RUNS[world]])
    first, second = make_trainer(config), make_trainer(config)
    for _ in range(4):
        first.advance()
    second.load_state_dict(first.state_dict())
    assert repr(finish(first).record.tables) == repr(finish(second).record.tables)
