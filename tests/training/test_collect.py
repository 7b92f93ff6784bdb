"""Collection: uniform play, and draws from the policy."""

from itertools import product

import numpy as np
import pytest

from magellan.competence import Outcomes
from magellan.config import resolve_run
from magellan.config.schema import RewardConfig
from magellan.core.randomness import STREAMS, choose, stream
from magellan.model.chat import Chat
from magellan.training.collect import Evaluator
from magellan.training.loop import Trainer
from tests.runs import SPACE, config, refuses


def test_choices_follow_the_probabilities_and_never_the_impossible():
    policy = np.tile([0.0, 0.25, 0.0, 0.75, 0.0], (20_000, 1))
    counts = np.bincount(choose(policy, np.random.default_rng(0)), minlength=5) / 20_000
    np.testing.assert_allclose(counts, [0, 0.25, 0, 0.75, 0], atol=0.01)
    assert counts[[0, 2, 4]].sum() == 0


def test_streams_are_named_and_independent():
    seeds_and_names = [*product((1, 2), STREAMS)]
    draws, again = ([tuple(stream(*key).random(4)) for key in seeds_and_names] for _ in range(2))
    assert draws == again
    assert len(set(draws)) == len(seeds_and_names)


def test_random_steps_do_not_ask_the_policy(monkeypatch):
    layer = {"goal_space": SPACE, "agent": {"random_steps": 32}}
    trainer, steps = Trainer(resolve_run("smoke", [layer])), []
    backend, policy = trainer.backend, trainer.backend.probabilities
    monkeypatch.setattr(
        backend, "probabilities", lambda states: steps.append(trainer.steps) or policy(states)
    )
    for _ in range(8):
        trainer._collect()
    assert steps == [32, 40, 48, 56] + [64 + 8 * i for i in range(24)]


EXPLORED = {"ek_online": {0, 1}, "random": {1}, "scripted": {-1}}


@pytest.mark.parametrize("sampler", EXPLORED)
def test_the_share_of_explored_episodes_is_epsilon(sampler):
    half, expected = {"epsilon_start": 0.5, "epsilon_end": 0.5}, EXPLORED[sampler]
    layer = {"sampler": sampler, "goal_space": SPACE, "samplers": half}
    trainer = Trainer(resolve_run("smoke", [layer]))
    explored = np.concatenate([trainer.collector.step().explored for _ in range(60)])
    assert len(explored) > 40
    assert set(explored.tolist()) == expected
    if len(expected) == 2:
        assert 0.3 < explored.mean() < 0.7


@pytest.mark.parametrize(("positive", "negative"), [(0.0, 0.0), (0.3, 0.2), (1.0, 0.0), (0.0, 1.0)])
def test_an_evaluator_errs_at_the_ends_of_episodes_only(positive, negative):
    rewards = {"false_positive": positive, "false_negative": negative}
    trainer = Trainer(resolve_run("smoke", [{"goal_space": SPACE, "rewards": rewards}]))
    collector, step, said = trainer.collector, trainer.collector._env.step, []

    def watched(actions):
        _, rewards, terminated, truncated, _ = result = step(actions)
        said.append(rewards[terminated | truncated])
        return result

    collector._env.step = watched
    observed = np.concatenate([collector.step(at_random=True).success for _ in range(400)])
    true = np.concatenate(said)
    for truth, rate in ((0.0, positive), (1.0, 1 - negative)):
        judged = observed[true == truth]
        assert len(judged) > 10
        assert abs(judged.mean() - rate) <= 5 * np.sqrt(rate * (1 - rate) / len(judged))
    assert ("evaluator" in collector.state_dict()) == (positive + negative > 0)


def test_who_reads_the_last_observation_sees_what_the_world_says():
    layer = {"goal_space": SPACE, "rewards": {"model": "scripted"}}
    trainer = Trainer(resolve_run("smoke", [layer]))
    evaluator, judged = trainer.evaluator, []
    judge = evaluator.judged

    def watched(rewards, ended, texts):
        result = judge(rewards, ended, texts)
        judged.append(np.stack([rewards, result])[:, ended])
        assert (result[~ended] == rewards[~ended]).all()
        return result

    evaluator.judged = watched
    for _ in range(400):
        trainer.collector.step()
    world, read = np.concatenate(judged, axis=1)
    assert 10 < world.sum() < len(world) - 10
    assert (world <= read).all()
    assert (read > world).mean() < 0.1  # who stands on a door cannot see that it never grew
    facts = evaluator.facts()["evaluator"]
    assert facts["questions"] == len({str(entry["messages"]) for entry in evaluator.chat.entries})
    assert facts["unread"] == 0


@pytest.mark.parametrize(
    ("answer", "success", "unread"),
    [("yes", 1, 0), ("no", 0, 0), ("yesterday", 0, 1), (None, 0, 1)],
)
def test_only_a_yes_is_a_success(answer, success, unread, monkeypatch):
    asked = []
    reply = {"answer": answer, "failures": [], "tokens": [0, 0], "seconds": 0.0}
    monkeypatch.setattr(Chat, "_answer", lambda _, messages: asked.append(messages) or reply)
    evaluator = Evaluator(RewardConfig(model="scripted"), {})
    rewards, ended = np.array([0.0, 1.0]), np.array([True, False])
    for _ in range(2):
        assert evaluator.judged(rewards, ended, lambda: ["a", "b"]).tolist() == [success, 1]
    assert len(asked) == 1 + (answer is None)  # what failed is asked again
    assert evaluator.facts()["evaluator"]["unread"] == unread * len(asked)


def test_success_at_an_impossible_goal_ends_the_run():
    trainer, wrong = (
        Trainer(config("random", rewards={"false_positive": chance})) for chance in (0.0, 0.1)
    )
    kinds = trainer.goals.categories_at(np.arange(len(trainer.goals)))
    won = Outcomes(np.flatnonzero(~trainer.goals.feasible[kinds])[:1], np.ones(1))
    refuses("^world little_zoo: success at a goal of impossible, which", trainer._count, won)
    wrong._count(won)
    assert (trainer.episodes, wrong.episodes) == (0, 1)
