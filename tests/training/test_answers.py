"""Runs whose agent writes: what samplers are told, what is trained on, what is counted."""

import numpy as np
import pytest

from magellan.config import resolve_run
from magellan.curriculum import Curriculum
from magellan.jobs.trained import TrainedAgent
from magellan.training.answers import make_trainer
from tests.runs import finish, refusal, rows, trained

SPACE = "6-6-6-6-2-2-2"
BUDGET = {"steps": 900, "evaluate_every": 300, "evaluation_goals": 4, "record_outcomes": True}


def config(sampler="random", **layer):
    given = {"world": "digits", "goal_space": SPACE, "sampler": sampler, "seed": 3}
    small = {"grpo": {"prompts": 3, "answers": 4, **layer.pop("grpo", {})}}
    return resolve_run("grpo", [given, small, {"budget": BUDGET}, layer])


@pytest.mark.parametrize("name", ["mopps", "plr"])
def test_a_sampler_is_told_what_a_curriculum_tells_it(name):
    trainer = make_trainer(config(name, budget={"steps": 9_000, "evaluate_every": 9_000}))
    kinds = trainer.goals.categories_at(np.arange(len(trainer.goals)))
    prompts = [trainer.goals.prompt(place) for place in range(len(kinds))]
    settings = {"samplers": {"epsilon_decay": 50.0}}
    curriculum = Curriculum(
        prompts, name, seed=3, groups=list(map(str, kinds)), impossible=["0"], settings=settings
    )
    solved = 0
    for _ in range(25):
        drawn = curriculum.sample(3)
        trainer.advance()
        written = trainer._written
        np.testing.assert_array_equal(written.positions, np.repeat(drawn, 4))
        curriculum.update(written.positions, written.rewards)
        solved += written.rewards.sum()
        np.testing.assert_array_equal(curriculum.probabilities(), trainer.sampler.probabilities())
    assert solved > 0


def test_a_gate_lets_through_groups_with_both_rewards(monkeypatch):
    trainer, given, groups = make_trainer(config(grpo={"gate": "spread"})), [], 0
    backend, update = trainer.backend, trainer.backend.update_writing
    monkeypatch.setattr(backend, "update_writing", lambda *all: given.append(all) or update(*all))
    for _ in range(12):
        trainer.advance()
        rewards = trainer._written.rewards.reshape(3, 4)
        groups += int((rewards.min(1) < rewards.max(1)).sum())
    assert all((rewards.min(1) < rewards.max(1)).all() for _, _, rewards, _ in given)
    assert sum(len(rewards) for _, _, rewards, _ in given) == groups > 0
    for prompts, tokens, rewards, _ in given:
        assert len(prompts) == len(tokens) == rewards.size


def test_steps_are_tokens_and_episodes_are_answers(tmp_path):
    folder = trained(config(), tmp_path / "run")
    last, episodes = rows(folder, "evaluation")[-1], rows(folder, "outcomes")
    assert int(last["step"]) == 900
    assert last["value"] == ""
    assert len(episodes) == int(last["update"]) * 12
    assert {row["success"] for row in episodes} == {"0", "1"}
    trainer, written = make_trainer(config()), 0
    for _ in range(3):
        trainer.advance()
        written += (trainer._written.tokens >= 0).sum()
    assert (trainer.steps, trainer.episodes) == (written, 36)
    assert "allowed: runs with actions" in refusal(TrainedAgent.read, folder)


def test_practice_teaches():
    """After practice of short prompts alone the agent writes them better."""
    shares = {"scripted": {"stages": [{"shares": [0, 1, 0, 0, 0, 0, 0]}]}}
    budget = {"budget": {"steps": 6_000, "evaluate_every": 3_000, "evaluation_goals": 28}}
    given = {"world": "digits", "goal_space": "0-28-0-0-0-0-0", "sampler": "scripted"}
    trainer = finish(make_trainer(resolve_run("grpo", [given, shares, budget])))
    columns = trainer.record.columns("evaluation")
    found = [dict(zip(columns, row, strict=True)) for row in trainer.record.tables["evaluation"]]
    rows = [row for row in found if (row["split"], row["category"]) == ("train", "length_1")]
    assert rows[-1]["success"] > rows[0]["success"] + 0.2
