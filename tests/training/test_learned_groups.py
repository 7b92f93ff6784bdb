"""Groups formed by the model: regions, their competence and their goals."""

import numpy as np
import pytest

from magellan.competence.learned_groups import (
    MIN_VARIANCE,
    LearnedGroups,
    kmeans,
    renumbered,
    whitened,
)
from tests import runs
from tests.training import test_learned
from tests.training.test_learned import practise

OFTEN = {"refresh": 2, "delay": 4, "regroup": 3, "regions": 5}


def make(**settings) -> LearnedGroups:
    return test_learned.make(LearnedGroups, **{**OFTEN, **settings})


def test_a_region_knows_the_mean_of_its_goals():
    groups = make()
    practise(groups, 7)
    of_goals = groups._now, groups._delayed
    for regions, goals in zip(groups.competence(groups.known()), of_goals, strict=True):
        for region in range(5):
            assert regions[region] == pytest.approx(goals[groups.arms.region == region].mean())
    assert np.abs(np.subtract(*groups.competence(groups.known()))).max() > 1e-3
    assert groups.candidates() is None


def test_regions_are_drawn_anew_every_few_refreshes_and_competence_at_each():
    groups, regions, competence = make(), [], []
    for _ in range(13):
        regions.append(groups.arms.region.copy())
        competence.append(groups.competence(groups.known())[0].copy())
        practise(groups, 1)
    redrawn, refreshed = (
        [n for n in range(1, 13) if (states[n] != states[n - 1]).any()]
        for states in (regions, competence)
    )
    assert set(redrawn) <= {6, 12}  # every third refresh of every second update
    assert redrawn
    assert refreshed == [2, 4, 6, 8, 10, 12]


def test_two_estimators_with_one_head_are_refused():
    message = runs.refusal(runs.config, "regions", observers=["learned"])
    assert message.startswith("observers: learned and learned_groups in one run are not allowed")


def test_kinds_that_lie_apart_get_regions_of_their_own():
    """Two large clusters and one of three goals along one direction, with four of noise."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [200, 100, 3])
    vectors = rng.normal(size=(303, 5)) * [0.05, 1.0, 0.1, 0.1, 0.1]
    vectors[:, 1] = 20 * kind + 0.1 * vectors[:, 1]
    region = kmeans(whitened(vectors, MIN_VARIANCE), 6)
    for number in range(6):
        assert len(set(kind[region == number])) == 1  # and there is one


def test_regions_keep_the_numbers_of_those_that_they_come_from():
    former = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    new = np.array([2, 2, 2, 0, 0, 1, 1, 0])
    assert renumbered(new, former).tolist() == [0, 0, 0, 1, 1, 2, 2, 1]
