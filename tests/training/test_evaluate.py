"""Evaluation: fixed goals, one episode each, random streams of its own."""

import re

import numpy as np
import pytest

from magellan.agent.backbone import load_model
from magellan.agent.packing import Codec, PackedState
from magellan.competence import Outcomes
from magellan.littlezoo import CATEGORIES, GoalSpace, WholeSpace
from magellan.littlezoo.vocabulary import HELD_OUT_OBJECTS, TRAIN_OBJECTS
from magellan.samplers import SamplerSettings, make_sampler
from magellan.training.evaluate import (
    evaluation_sets,
    mean_competence,
    mean_competence_of_space,
    play,
)


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


@pytest.mark.parametrize("name", ["online", "ek_online"])
def test_means_over_a_space_are_those_of_all_its_goals(name):
    """Against the competence of every single goal, written down."""
    goals = GoalSpace.draw((40, 30, 20, 10, 5), 0)
    sampler = make_sampler(name, goals, np.random.default_rng(0), SamplerSettings(window=8))
    rng = np.random.default_rng(1)
    practised = rng.integers(len(goals), size=300)
    sampler.update(Outcomes(practised, rng.integers(0, 2, 300)))
    arm_of_goal = np.arange(len(goals)) if name == "online" else goals.categories.astype(np.int64)
    now, delayed = sampler.estimator.competence(arm_of_goal)
    expected = mean_competence(goals.categories, now, delayed)
    found = mean_competence_of_space(sampler, goals)
    assert [(m.category, m.n) for m in found] == [(m.category, m.n) for m in expected]
    for mine, other in zip(found, expected, strict=True):
        assert (mine.now, mine.delayed, mine.progress) == pytest.approx(
            (other.now, other.delayed, other.progress), rel=1e-12
        )
    assert max(m.progress for m in found) > 0.02


def test_means_over_the_whole_space_count_every_goal():
    """One of 5,184 carnivore goals succeeds after a failure; one grasp goal fails after success."""
    space = WholeSpace()
    carnivore, grasp = (int(space.nth(category, np.array([9]))[0]) for category in (4, 1))
    sampler = make_sampler("online", space, np.random.default_rng(0))
    sampler.update(Outcomes(np.array([carnivore, grasp] * 2), np.array([0, 1, 1, 0])))
    means = {m.category: m for m in mean_competence_of_space(sampler, space)}
    assert [m.n for m in means.values()] == [17_995_213, 1_471_225, 41_484, 18_144, 5_184]
    assert means["grow_carnivore"].now == means["grow_carnivore"].progress == 1 / 5_184
    assert means["grow_carnivore"].delayed == 0
    assert (means["grasp"].now, means["grasp"].delayed) == (0, 1 / 1_471_225)
    assert means["impossible"].progress == 0
    assert mean_competence_of_space(make_sampler("random", space, None), space) == []


def test_evaluation_sets_of_the_whole_space():
    sets = evaluation_sets(WholeSpace(), per_category=64, seed=5)
    assert sets["train"].goals.counts() == dict.fromkeys(CATEGORIES, 64)
    assert len(np.unique(sets["train"].goals.indices)) == 5 * 64
