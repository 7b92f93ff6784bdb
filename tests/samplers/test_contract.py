"""What every sampler in the registry keeps to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from magellan.competence import Outcomes
from magellan.competence.arms import EachCategory, Regions
from magellan.samplers import SAMPLERS, GoalSampler
from tests.samplers.few_goals import TEN_GOALS, make, outcomes

pytestmark = pytest.mark.parametrize("name", SAMPLERS)

GROUPS = [np.flatnonzero(TEN_GOALS.categories == category) for category in (0, 1, 2, 4)]


# An evaluation of every arm after each sixth update or so, where competence is evaluated.
SETTINGS = {
    "epsilon_decay": 20.0,
    "every": 50,
    "episodes": 20,
    "fit_every": 100,
    "batch": 50,
    "updates": 50,
}
PUBLISHED = {"random": 1.0, "alp_gmm": 0.2}
FIXED = {name: PUBLISHED.get(name, 0.0) for name in SAMPLERS if not SAMPLERS[name].epsilon}
"""Their epsilon, which no update moves; 0 where the rule leaves no goal out, as published."""
GUESS = ("pcl", "vds")
"""Their estimators tell goals apart before any outcome."""
ORDERED = ("scripted", "e2h", "adarft")
"""These begin with what a script or the world's order says."""


def practise(sampler: GoalSampler, episodes: np.random.Generator, updates: int) -> None:
    """Play as a training loop would, on made-up outcomes that lean to success on later goals."""
    for update in range(updates):
        goals = sampler.sample(8)
        success = episodes.random(8) < goals / 10
        if sampler.estimator is not None:
            wanted = sampler.estimator.wanted(8 * update)
            if wanted is not None:
                played = episodes.random(len(wanted)) < wanted / 10
                sampler.estimator.evaluated(Outcomes(wanted, played))
        standing_on, advantage = episodes.integers(-1, 4, 8), episodes.random(8)
        sampler.update(Outcomes(goals, success, standing_on, advantage=advantage))


@pytest.fixture
def practised(name: str) -> GoalSampler:
    """The sampler after 40 updates with epsilon well below one."""
    sampler = make(name, **SETTINGS)
    practise(sampler, np.random.default_rng(1), updates=40)
    return sampler


def test_probabilities_sum_to_one_and_are_finite(practised: GoalSampler) -> None:
    probabilities = practised.probabilities()
    assert probabilities.shape == (10,)
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)


def test_every_goal_keeps_its_share_of_exploration(name: str, practised: GoalSampler) -> None:
    probabilities, epsilon = practised.probabilities(), practised.epsilon
    if isinstance(practised.arms, EachCategory):  # explores groups with goals, then any goal of one
        assert all(probabilities[group].sum() >= epsilon / 4 - 1e-12 for group in GROUPS)
        assert all(np.ptp(probabilities[group]) == 0.0 for group in GROUPS)
    elif isinstance(practised.arms, Regions):  # explores the regions, then any goal of one
        sizes = practised.arms.sizes[practised.arms.region]
        assert (probabilities >= epsilon / len(practised.arms) / sizes - 1e-12).all()
    else:
        assert (probabilities >= epsilon / 10 - 1e-12).all()
        assert (probabilities > 0).all() or name == "scripted"


def test_learning_samplers_end_up_away_from_uniform(name: str, practised: GoalSampler) -> None:
    """Guards the tests around: they would say little about a sampler that learned nothing."""
    uniform = np.allclose(practised.probabilities(), 0.1)
    assert uniform == (name == "random")


def test_draws_follow_the_probabilities(practised: GoalSampler) -> None:
    """200,000 draws: each frequency within five standard errors."""
    probabilities, n = practised.probabilities(), 200_000
    frequencies = np.bincount(practised.sample(n), minlength=10) / n
    error = np.sqrt(probabilities * (1 - probabilities) / n)
    assert (np.abs(frequencies - probabilities) <= 5 * error + 1e-12).all()


def test_same_seed_same_draws_other_seed_others(name: str) -> None:
    def draws(seed: int) -> list[int]:
        sampler = make(name, seed=seed, **SETTINGS)
        practise(sampler, np.random.default_rng(1), updates=30)
        return sampler.sample(50).tolist()

    assert draws(0) == draws(0)
    assert draws(0) != draws(1)


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint does to a state: arrays stay, the rest goes through JSON and back."""
    if isinstance(state, dict):
        return {key: through_json(value) for key, value in state.items()}
    return state.copy() if isinstance(state, np.ndarray) else json.loads(json.dumps(state))


def test_a_restored_sampler_goes_on_as_the_first(name: str, practised: GoalSampler) -> None:
    restored = make(name, seed=99, **SETTINGS)
    restored.load_state_dict(through_json(practised.state_dict()))
    for sampler in (practised, restored):
        practise(sampler, np.random.default_rng(2), updates=20)
    np.testing.assert_array_equal(practised.probabilities(), restored.probabilities())
    np.testing.assert_array_equal(practised.sample(50), restored.sample(50))
    assert practised.epsilon == restored.epsilon


def test_epsilon_moves_once_per_update_even_without_episodes(name: str) -> None:
    sampler = make(name, epsilon_start=0.9, epsilon_end=0.1, epsilon_decay=2.0)
    before = sampler.epsilon
    sampler.sample(5)
    assert sampler.epsilon == before
    sampler.update(outcomes())
    if name in FIXED:
        assert (before, sampler.epsilon) == (FIXED[name], FIXED[name])
    else:
        assert before == pytest.approx(0.9)
        assert sampler.epsilon == pytest.approx(0.1 + 0.8 * np.exp(-0.5))


def test_nothing_learned_is_uniform_over_arms(name: str) -> None:
    """Before any outcome all learning progress is 0, so even exploitation has no favourite."""
    if name in ORDERED:
        pytest.skip("it has a favourite before it learns")
    if name in GUESS:
        pytest.skip("its estimator's guess is something")
    sampler = make(name, epsilon_start=0.4)
    probabilities = sampler.probabilities()
    if isinstance(sampler.arms, EachCategory):
        # Explored: 4 groups have goals. Exploited: grasp, plant and carnivore.
        explored, exploited = sampler.epsilon / 4, (1 - sampler.epsilon) / 3
        by_category = np.bincount(TEN_GOALS.categories, weights=probabilities)
        expected = [explored, *[explored + exploited] * 2, 0.0, explored + exploited]
        np.testing.assert_allclose(by_category, expected)
    elif isinstance(sampler.arms, Regions):
        by_region = np.bincount(sampler.arms.region, weights=probabilities)
        np.testing.assert_allclose(by_region, 1 / len(sampler.arms))
    else:
        np.testing.assert_allclose(probabilities, 0.1)
