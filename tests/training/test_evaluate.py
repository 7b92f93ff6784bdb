"""Evaluation: fixed goals, one episode each, random streams of its own."""

import re

import numpy as np
import pytest

from magellan.agent.backbone import load_model
from magellan.agent.packing import Codec, PackedState
from magellan.littlezoo import CATEGORIES, GoalSpace
from magellan.littlezoo.vocabulary import HELD_OUT_OBJECTS, TRAIN_OBJECTS
from magellan.training.evaluate import evaluation_sets, play


@pytest.fixture(scope="module")
def tokenizer():
    return load_model("zoo-mini")[1]


@pytest.fixture(scope="module")
def sets():
    return evaluation_sets(GoalSpace.named("25k", 0), per_category=64, seed=5)


class Grasper:
    """A policy that walks to the object of the goal and grasps it, whatever the verb."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        policy = np.zeros((len(states), max(state.segments[-1] for state in states)))
        for row, state in enumerate(states):
            policy[row, self._choice(state)] = 1.0
        return policy

    def _choice(self, state: PackedState) -> int:
        prompt, *candidates = (
            self._tokenizer.decode(state.tokens[state.segments == part])
            for part in range(state.segments[-1] + 1)
        )
        target = re.match(r"Goal: \w+ (\w+)", prompt)[1]
        if re.search(rf"standing on: .*\b{target}\b", prompt):
            return candidates.index("Grasp")
        near = [
            i for i, action in enumerate(candidates) if re.search(rf"to .*\b{target}\b", action)
        ]
        return near[0] if near else 0


def test_as_many_goals_per_category_as_there_are(sets):
    counts = sets["train"].goals.counts()
    assert counts == {**dict.fromkeys(CATEGORIES, 64), "grow_carnivore": 32}
    assert sets["unseen"].goals.counts() == dict.fromkeys(CATEGORIES, 64)


def test_training_side_is_part_of_the_training_goals_and_unseen_side_is_not(sets):
    training = GoalSpace.named("25k", 0)
    chosen = sets["train"].goals.indices
    assert np.isin(chosen, training.indices).all()
    assert len(np.unique(chosen)) == len(chosen)
    for position in range(len(sets["unseen"].goals)):
        goal = sets["unseen"].goals.goal(position)
        assert goal.text.split()[1] in HELD_OUT_OBJECTS
        assert goal.objects[0] == goal.text.split()[1]
        assert set(goal.objects[1:]) <= set(TRAIN_OBJECTS)


def test_sets_depend_on_the_evaluation_seed_alone(sets):
    again = evaluation_sets(GoalSpace.named("25k", 0), per_category=64, seed=5)
    other = evaluation_sets(GoalSpace.named("25k", 0), per_category=64, seed=6)
    for split in ("train", "unseen"):
        np.testing.assert_array_equal(again[split].goals.indices, sets[split].goals.indices)
        assert (other[split].goals.indices != sets[split].goals.indices).any()


@pytest.mark.parametrize("split", ["train", "unseen"])
def test_every_feasible_goal_is_played_once(sets, tokenizer, split):
    outcome = play(Grasper(tokenizer), Codec(tokenizer), sets[split], seed=1)
    assert outcome["grasp"] == (64, 1.0)
    for category in ("grow_plant", "grow_herbivore"):
        assert outcome[category] == (64, 0.0)
    assert outcome["grow_carnivore"] == (32 if split == "train" else 64, 0.0)
    assert "impossible" not in outcome


def test_the_same_draws_at_every_evaluation(sets, tokenizer):
    class Uniform:
        def probabilities(self, states):
            counts = np.array([state.segments[-1] for state in states])[:, None]
            return (np.arange(counts.max()) < counts) / counts

    codec = Codec(tokenizer)
    first = play(Uniform(), codec, sets["train"], seed=1)
    assert play(Uniform(), codec, sets["train"], seed=1) == first
    assert 0.0 < first["grasp"][1] < 0.4
    assert play(Uniform(), codec, sets["train"], seed=2) != first
