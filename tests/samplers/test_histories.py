"""Probabilities of each sampler on histories worked out by hand."""

import numpy as np
import pytest

from magellan.core.errors import InputError, NotFiniteError
from magellan.samplers import SamplerParts, make_sampler
from magellan.samplers.conformance import FewGoals, exploration, make
from magellan.worlds.little_zoo import WholeSpace
from tests.runs import refusal
from tests.samplers.few_goals import Given, outcomes

HALF = {"epsilon_start": 0.5, "epsilon_end": 0.5}  # a constant epsilon keeps the sums short


def test_online_has_no_threshold():
    """250 successes, then 249 and a failure: learning progress 1/250 is all there is to follow."""
    sampler = make("online", epsilon_start=0.0, epsilon_end=0.0, window=500, lp_threshold=0.5)
    sampler.update(outcomes(*[(3, 1)] * 499, (3, 0)))
    np.testing.assert_allclose(sampler.probabilities(), np.eye(10)[3])


@pytest.mark.parametrize(("dropped", "carnivore"), [(False, 0.25), (True, 0.0)])
def test_ek_online_can_drop_episodes_that_start_on_an_object(dropped, carnivore):
    """Plant 0 | 1 and carnivore 0 | 1 share 1/2, unless the latter's success, begun on object 0, is
    dropped: then plant has it all. Two carnivore goals share that, and 1/8 by exploration."""
    sampler = make("ek_online", drop_standing_starts=dropped, **HALF)
    sampler.update(outcomes((2, 0), (7, 0), (8, 1), (7, 1), standing_on=[-1, -1, 0, -1]))
    assert sampler.probabilities()[8] == pytest.approx((0.125 + carnivore) / 2)


def test_ek_online_needs_a_feasible_goal():
    assert "all goals are impossible" in refusal(make, "ek_online", FewGoals([0, 0, 0]))


def magellan_over(estimator):
    """MAGELLAN over four goals of any category, with this estimator."""
    rng = np.random.default_rng(0)
    parts = SamplerParts(FewGoals([0, 1, 0, 2]), rng, exploration(**HALF), estimator)
    return make_sampler("magellan", parts)


def test_magellan_needs_an_estimator_that_is_finite():
    diverged = Given([0.5, np.nan, 0.5, 0.5], [0.5] * 4)
    for estimator, kind, words in (
        (diverged, NotFiniteError, r"sampler magellan \(.*magellan\.py\): .* competence nan now"),
        (None, InputError, "magellan needs the estimator learned; none was given"),
    ):
        with pytest.raises(kind, match=words):
            magellan_over(estimator)


class Pool(Given):
    """Knows a few goals only, other ones after each update."""

    def __init__(self, *pools):
        self._pools = [tuple(map(np.array, pool)) for pool in pools]
        self.update()

    def candidates(self):
        return self.goals

    def known(self):
        return np.arange(len(self.now))

    def update(self, outcomes=None):
        self.goals, self.now, self.delayed = self._pools.pop(0)


def test_exploitation_keeps_to_the_candidates_and_exploration_does_not():
    """Pool of goals 3 and 1 with progress 0.1 and 0.3, then of goal 0, then without progress.

    Epsilon 1/2: 0.125 for all four, and 0.5 shared by the pool, or by all where it has no progress.
    """
    progress = ([3, 1], [0.5, 0.2], [0.4, 0.5]), ([0], [1.0], [0.5])
    sampler = magellan_over(Pool(*progress, ([1, 2], [0.6, 0.3], [0.6, 0.3]), ([], [], [])))
    expected = [0.125, 0.5, 0.125, 0.25]
    np.testing.assert_allclose(sampler.probabilities(), expected)
    frequencies = np.bincount(sampler.sample(20_000), minlength=4) / 20_000
    np.testing.assert_allclose(frequencies, expected, atol=0.02)
    sampler.update(outcomes())
    np.testing.assert_allclose(sampler.probabilities(), [0.625, 0.125, 0.125, 0.125])
    for _ in range(2):
        sampler.update(outcomes())
        np.testing.assert_allclose(sampler.probabilities(), 0.25)
        assert set(sampler.sample(200).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["online", "ek_online"])
def test_draws_from_a_space_of_millions_follow_its_categories(name):
    """The whole space: a goal of every category practised; what makes progress is drawn again."""
    space = WholeSpace()
    first = {category: int(space.nth(category, np.array([3]))[0]) for category in range(5)}
    history = [(first[c], int(c in (2, 3) and late)) for late in (0, 1) for c in range(5)]
    sampler = make(name, space, epsilon_start=0.0, epsilon_end=0.0)
    assert sampler.sample(4).dtype == np.int64
    sampler.update(outcomes(*history))
    drawn = sampler.sample(1_000)
    categories = space.categories_at(drawn)
    np.testing.assert_allclose(np.bincount(categories), [0, 0, 500, 500], atol=60)
    if name == "online":
        assert set(drawn.tolist()) == {first[2], first[3]}
    else:
        assert len(set(drawn.tolist())) > 900
