"""Evaluation: fixed goals, one episode each, separate random streams."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from magellan.competence import EstimatorParts, Outcomes, make_estimator
from magellan.core.codec import Codec
from magellan.model.loading import load_model
from magellan.training import evaluate as evaluation
from magellan.training.collect import uniform
from magellan.worlds.little_zoo import CATEGORIES, FEASIBLE, GoalSpace, WholeSpace
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_OBJECTS


@pytest.fixture(scope="module")
def tokenizer():
    return load_model("zoo-mini")[1]


@pytest.fixture(scope="module")
def sets():
    return evaluation.evaluation_sets(GoalSpace.named("25k", 0), per_category=64, seed=5)


def grasper(tokenizer):
    """A policy that walks to the object of the goal and grasps it, whatever the verb."""

    def choice(state):
        parts = [state.tokens[state.segments == n] for n in range(state.segments[-1] + 1)]
        prompt, *candidates = map(tokenizer.decode, parts)
        target = re.match(r"Goal: \w+ (\w+)", prompt)[1]
        if re.search(rf"standing on: .*\b{target}\b", prompt):
            return candidates.index("Grasp")
        near = (i for i, a in enumerate(candidates) if re.search(rf"to .*\b{target}\b", a))
        return next(near, 0)

    def probabilities(states):
        return np.eye(max(state.segments[-1] for state in states))[[*map(choice, states)]]

    return SimpleNamespace(probabilities=probabilities, codec=Codec(tokenizer))


def counts(goals):
    return dict(zip(CATEGORIES, np.bincount(goals.categories).tolist(), strict=True))


def codes(goals):
    return goals.space.codes_at(goals.positions)


def play(agent, goals, seed):
    success = evaluation.evaluate(agent, goals, seed)
    return evaluation.by_category(goals.kinds, goals.categories[goals.feasible], success)


def test_as_many_goals_per_category_as_there_are(sets):
    whole = evaluation.evaluation_sets(WholeSpace(), per_category=64, seed=5)["train"]
    assert counts(sets["train"]) == {**dict.fromkeys(CATEGORIES, 64), "grow_carnivore": 32}
    assert counts(sets["unseen"]) == counts(whole) == dict.fromkeys(CATEGORIES, 64)
    assert len(np.unique(codes(whole))) == 5 * 64


def test_training_side_is_part_of_the_training_goals_and_unseen_side_is_not(sets):
    chosen = codes(sets["train"])
    assert np.isin(chosen, GoalSpace.named("25k", 0).indices).all()
    assert len(np.unique(chosen)) == len(chosen)
    for position in range(len(sets["unseen"].positions)):
        assert sets["unseen"].space.goal(position).text.split()[1] in HELD_OUT_OBJECTS


def test_every_feasible_goal_is_played_once(sets, tokenizer):
    outcome = play(grasper(tokenizer), sets["train"], seed=1)
    none = dict.fromkeys(("grow_plant", "grow_herbivore"), (64, 0.0))
    assert outcome == {"grasp": (64, 1.0), **none, "grow_carnivore": (32, 0.0)}


def test_the_critic_is_asked_about_the_states_that_an_evaluation_begins_with(sets, tokenizer):
    evaluated, of_critic = [], []
    backend = SimpleNamespace(
        probabilities=lambda states: evaluated.append(states) or uniform(states),
        codec=Codec(tokenizer),
        critic_statistics=lambda states: of_critic.extend(states) or {},
    )
    goals = sets["train"]
    evaluation.evaluate(backend, goals, seed=1)
    evaluation.critic_by_category(backend, goals, 1, goals.space.world.environment)
    first, asked = ([s.tokens.tolist() for s in states] for states in (evaluated[0], of_critic))
    assert asked == first  # goals are in order of category


def test_the_same_draws_at_every_evaluation(sets, tokenizer):
    def rates(seed):
        agent = SimpleNamespace(probabilities=uniform, codec=Codec(tokenizer))
        return play(agent, sets["train"], seed)

    assert rates(1) == rates(1) != rates(2)
    assert 0.0 < rates(1)["grasp"][1] < 0.4


@pytest.mark.parametrize("name", ["per_goal", "expert_buckets"])
def test_predictions_are_for_the_goals_that_are_evaluated(name):
    """Compared with the competence of every arm; unseen goals have their group's, or 0."""
    goals = GoalSpace.draw((40, 30, 20, 10, 5), 0)
    estimator = make_estimator(name, EstimatorParts(goals, np.random.default_rng))
    rng = np.random.default_rng(1)
    estimator.update(Outcomes(rng.integers(len(goals), size=900), rng.integers(0, 2, 900)))
    sets = evaluation.evaluation_sets(goals, per_category=4, seed=5)
    for split, chosen in sets.items():
        arms = chosen.positions if name == "per_goal" else chosen.categories.astype(np.int64)
        expected = np.stack(estimator.competence(arms))
        if (name, split) == ("per_goal", "unseen"):
            expected = np.zeros_like(expected)
        predictions = np.stack(estimator.predict(chosen.space, chosen.positions))
        np.testing.assert_array_equal(predictions, expected)
        rows = list(evaluation.competence_rows(chosen, *predictions))
        assert [row["n"] for row in rows] == [4] * 5
        for row in rows:
            now, delayed = expected[:, chosen.categories == CATEGORIES.index(row["category"])]
            assert row["competence"] == pytest.approx(now.mean())
            assert row["learning_progress"] == pytest.approx(np.abs(now - delayed).mean())
    if name == "expert_buckets":
        assert set(FEASIBLE) == {row["category"] for row in rows if row["competence"] > 0}
