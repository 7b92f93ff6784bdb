"""Collection: uniform play, and draws from the policy."""

import numpy as np
import pytest

from magellan.agent.codec import PackedState
from magellan.config import resolve_run
from magellan.training.collect import uniform
from magellan.training.loop import Trainer
from magellan.training.randomness import STREAMS, choose, streams


def state(candidates: int) -> PackedState:
    segments = np.repeat(np.arange(candidates + 1, dtype=np.int8), 2)
    return PackedState(np.zeros(len(segments), np.int32), segments)


def test_uniform_play_is_over_each_states_candidates():
    policy = uniform([state(2), state(5), state(1)])
    expected = [[0.5, 0.5, 0, 0, 0], [0.2] * 5, [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(policy, expected)


def test_choices_follow_the_probabilities_and_never_the_impossible():
    policy = np.tile([0.0, 0.25, 0.0, 0.75, 0.0], (20_000, 1))
    counts = np.bincount(choose(policy, np.random.default_rng(0)), minlength=5) / 20_000
    np.testing.assert_allclose(counts, [0, 0.25, 0, 0.75, 0], atol=0.01)
    assert counts[[0, 2, 4]].sum() == 0


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_named_and_independent(name):
    first, again, other = streams(1), streams(1), streams(2)
    draws = first[name].random(4)
    np.testing.assert_array_equal(draws, again[name].random(4))
    assert not np.array_equal(draws, other[name].random(4))
    for sibling in set(STREAMS) - {name}:
        assert not np.array_equal(draws, first[sibling].random(4))


def test_random_steps_do_not_ask_the_policy(monkeypatch):
    layer = {"goal_space": "40-20-10-5-5", "agent": {"random_steps": 32}}
    trainer = Trainer(resolve_run("smoke", [layer]))
    asked = []
    backend = trainer.backend
    policy = backend.probabilities
    monkeypatch.setattr(
        backend, "probabilities", lambda states: asked.append(trainer.steps) or policy(states)
    )
    for _ in range(8):
        trainer._collect()
    assert asked == [32, 40, 48, 56] + [64 + 8 * i for i in range(24)]
