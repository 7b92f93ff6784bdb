"""The simulated learner has the competence that it says it has."""

import numpy as np
import pytest

from magellan.config import identity, resolve_run
from magellan.training.loop import Trainer
from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.simulated import KINDS, chance, practised
from magellan.worlds.simulated.grammar import COLORS, texts

WORLD = WORLDS["simulated"]
SPACE = "60-60-20-132-132"


def tried(env, goals, positions, seed=None, **options):
    """Success of one try each."""
    given = {"goals": [goals.goal(int(position)) for position in positions], **options}
    env.reset(seed=seed, options=given)
    _, rewards, terminated, truncated, _ = env.step(np.zeros(len(positions), dtype=int))
    assert truncated.all()
    assert (terminated == (rewards > 0)).all()
    return rewards


def test_no_unseen_goal_is_about_something_of_training():
    for split, other in (SPLITS, SPLITS[::-1]):
        for group in texts(split):
            assert len(set(group)) == len(group)
            assert not [text for text in group if any(c in text for c in COLORS[other])]
    assert [len(group) for group in texts("train")] == [60, 60, 20, 132, 132]
    assert [len(group) for group in texts("unseen")] == [30, 30, 10, 30, 30]


def test_competence_rises_kind_by_kind():
    skills, half = np.zeros(len(KINDS)), np.full(len(KINDS), np.inf)
    for episode in range(1, 3_001):
        before, skills = skills, practised(skills, np.ones(len(KINDS), dtype=int))
        assert ((before <= skills) & (skills < 1)).all()
        half = np.where((skills >= 0.5) & np.isinf(half), episode, half)
    assert (np.diff(half) > 20).all()
    assert (skills > 0.99).all()


def test_a_kind_is_not_learned_before_the_one_below_and_not_without_practice():
    only_last = practised(np.zeros(5), np.array([0, 0, 0, 0, 1_000]))
    assert (only_last == 0).all()
    assert practised(only_last, np.array([10, 0, 0, 0, 0])).tolist()[1:] == [0, 0, 0, 0]


@pytest.mark.parametrize("split", SPLITS)
def test_outcomes_are_drawn_from_the_competence(split):
    env = WORLD.environment(404)
    env.skills = np.array([0.9, 0.7, 0.5, 0.3, 0.1])
    goals = WORLD.goals(SPACE, 0) if split == "train" else WORLD.unseen(99, 0)
    positions = np.random.default_rng(1).integers(len(goals), size=20_000)
    success = tried(env.aside(20_000), goals, positions, seed=0)
    kinds = goals.categories_at(positions)
    for kind in range(5):
        mine = success[kinds == kind]
        expected = chance(env.skills, np.array([kind]), split)[0]
        assert abs(mine.mean() - expected) < 4 * np.sqrt(0.25 / len(mine))


def test_training_teaches_and_evaluation_does_not():
    goals, env = WORLD.goals(SPACE, 0), WORLD.environment(8)
    tried(env, goals, np.arange(8), seed=0)
    after = env.skills.copy()
    assert after[0] > 0
    tried(env.aside(8), goals, np.arange(8), seed=0)
    env.step(np.full(8, -1))
    assert (env.skills == after).all()


def settings(sampler):
    return {
        "world": "simulated",
        "goal_space": SPACE,
        "sampler": sampler,
        "observers": ["expert_buckets"],
        "budget": {"episodes": 400, "evaluate_every": 200},
    }


def finish(trainer):
    while not trainer.done:
        trainer.advance()
    return trainer


@pytest.mark.parametrize("sampler", ["ek_online", "magellan"])
def test_runs_train_and_resume(sampler):
    config = resolve_run("smoke", [settings(sampler)])
    assert identity(config) != identity(resolve_run("smoke", [{"goal_space": "2500"}]))
    first, second = Trainer(config), Trainer(config)
    for _ in range(4):
        first.advance()
    second.load_state_dict(first.state_dict())
    assert repr(finish(first).record.tables) == repr(finish(second).record.tables)


def test_an_estimator_finds_the_competence():
    trainer = finish(Trainer(resolve_run("smoke", [settings("random")])))
    truth = trainer.collector.aside(1).skills
    now, _ = trainer.estimators.by_name["expert_buckets"].predict(
        trainer.goals, trainer.goals.nth(0, np.array([0]))
    )
    assert abs(now[0] - truth[0]) < 0.35
