"""The heads of the estimator `ensemble`, on features that stand in for a language model's."""

import numpy as np

from magellan.competence import Outcomes
from magellan.competence.ensemble import Ensemble, EnsembleSettings
from magellan.samplers.conformance import TEN_GOALS
from magellan.worlds.texts import TextGoals

KINDS = np.eye(3, dtype=np.float32)


def numbered(*codes):
    """Goals of three kinds, known by numbers; the kind is all that their features tell."""
    return TextGoals(TEN_GOALS.world, np.array(codes))


def features(goals, positions=None):
    return KINDS[(goals.indices if positions is None else goals.indices[positions]) % 3]


def made(goals, seed=0):
    settings = EnsembleSettings(learning_rate=0.02, batch_size=32, delay=20)
    return Ensemble(goals, features, settings, np.random.default_rng(seed))


def practised(estimator, updates):
    """Goals 0 and 3, of kind 0, succeed; goal 1 fails; kind 2 is never tried."""
    for _ in range(updates):
        estimator.update(Outcomes(np.array([0, 1, 3]), np.array([1, 0, 1])))
    return estimator


SIX = numbered(0, 1, 2, 3, 4, 5)


def test_heads_agree_on_what_they_have_seen_and_not_on_what_they_have_not():
    before = made(SIX).uncertainty(np.arange(6))
    estimator = practised(made(SIX), 200)
    now, delayed = estimator.competence(np.arange(6))
    assert now[[0, 3]].min() > 0.95
    assert now[[1, 4]].max() < 0.05
    assert np.abs(now - delayed).max() < 0.05
    after = estimator.uncertainty(np.arange(6))
    assert (after[[0, 1, 3, 4]] < before[[0, 1, 3, 4]] / 3).all()
    assert after[2] > 5 * after[:2].max()


def test_delayed_competence_is_that_of_so_many_updates_ago():
    estimator = practised(made(SIX), 7)
    then = estimator.competence(np.arange(6))[0]
    _, delayed = practised(estimator, 20).competence(np.arange(6))
    np.testing.assert_array_equal(delayed, then)


def test_it_goes_on_with_other_goals_and_predicts_for_any():
    """Goals 3 and 1 stay, in other places; 7 is of the kind of 1, and 9 of that of 3."""
    estimator = practised(made(SIX), 200)
    expected = estimator.competence(np.array([3, 1, 1, 3]))
    others = numbered(3, 1, 7, 9)
    np.testing.assert_allclose(estimator.predict(others, np.arange(4)), expected)
    estimator.set_goal_space(others)
    np.testing.assert_allclose(estimator.competence(np.arange(4)), expected)
    assert sorted(set(estimator._buffer[: estimator._episodes, 0])) == [-1, 0, 1]
    estimator.update(Outcomes(np.array([2]), np.array([0])))
    assert estimator.competence(np.array([2]))[0] < 0.05
