"""What every sampler in the registry keeps to."""

from itertools import product

import numpy as np
import pytest

from magellan.competence import ESTIMATORS
from magellan.competence.arms import EachCategory, Regions
from magellan.samplers import SAMPLERS, ConstantEpsilon, SamplerParts, conformance, make_sampler
from magellan.samplers.conformance import CHECKS, TEN_GOALS, estimator_of, make
from tests.samplers.few_goals import outcomes

pytestmark = pytest.mark.parametrize("name", SAMPLERS)

GROUPS = [np.flatnonzero(TEN_GOALS.categories == category) for category in (0, 1, 2, 4)]


FIXED = {name: 0.0 for name in SAMPLERS if not SAMPLERS[name].epsilon}
FIXED |= {"random": 1.0, "alp_gmm": 0.2}
"""Their epsilon, which no update moves; 0 where the rule leaves no goal out, as published."""
LEAVES_OUT = ("scripted", "cdas", "dps")
"""These may give a goal no chance, or one below rounding."""
FAVOURITES = ("scripted", "e2h", "adarft", "pcl", "vds", "frontier", "goldilocks")
"""These begin with a script, the world's order, or an estimator's guess."""


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_contract(name, check):
    CHECKS[check](name)


def test_what_practice_leaves_of_exploration_and_of_chance(name):
    """Every goal keeps its share; learning samplers are away from uniform, and seeds differ."""
    practised, other = (conformance.practised(name, seed) for seed in (0, 1))
    probabilities, epsilon = practised.probabilities(), practised.epsilon
    if isinstance(practised.arms, EachCategory):  # explores groups with goals, then any goal of one
        assert all(probabilities[group].sum() >= epsilon / 4 - 1e-12 for group in GROUPS)
        assert all(np.ptp(probabilities[group]) == 0.0 for group in GROUPS)
    elif isinstance(practised.arms, Regions):  # explores the regions, then any goal of one
        sizes = practised.arms.sizes[practised.arms.region]
        assert (probabilities >= epsilon / len(practised.arms) / sizes - 1e-12).all()
    else:
        assert (probabilities >= epsilon / 10 - 1e-12).all()
        assert (probabilities > 0).all() or name in LEAVES_OUT
    assert np.allclose(probabilities, 0.1) == (name == "random")
    assert practised.sample(50).tolist() != other.sample(50).tolist()


def test_it_explores_what_its_registration_says(name):
    """With epsilon 1, under any estimator; `explored` is empty where it is neither."""
    spec = SAMPLERS[name]
    assert bool(spec.explores) == spec.epsilon
    if not spec.explores:
        return
    options = [{"explore": "goals"}, {}] if name == "ek_online" else [{}]
    for settings, estimator in product(options, ESTIMATORS if spec.estimator else [None]):
        constants, driver = spec.settings(**settings), estimator_of(estimator, TEN_GOALS)
        parts = SamplerParts(TEN_GOALS, np.random.default_rng(0), ConstantEpsilon(1.0), driver)
        probabilities = make_sampler(name, parts, constants).probabilities()
        of_groups = 0.25 / TEN_GOALS.sizes[TEN_GOALS.categories]
        shares = {"goals": np.full(10, 0.1), "categories": of_groups}
        explored = spec.explored(constants, estimator)
        assert explored in shares or isinstance(driver.arms, Regions)
        for what, share in shares.items():
            assert np.allclose(probabilities, share) == (what == explored), (estimator, what)


def test_epsilon_moves_once_per_update_even_without_episodes(name):
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


def test_nothing_learned_is_uniform_over_arms(name):
    """Before any outcome all learning progress is 0, so even exploitation has no favourite."""
    if name in FAVOURITES:
        pytest.skip("it has a favourite before it learns")
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
