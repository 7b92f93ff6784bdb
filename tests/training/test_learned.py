"""MAGELLAN's competence head, and groups formed by the model on it."""

from functools import partial

import numpy as np
import pytest
import torch

from magellan.backends.local import LocalBackend
from magellan.competence import learned_groups as grouped
from magellan.competence.base import Outcomes
from magellan.competence.learned import LearnedCompetence, LearnedSettings
from magellan.competence.registry import EstimatorParts
from magellan.core.randomness import stream
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.settings import BackboneConfig
from magellan.worlds.little_zoo import GoalSpace
from tests.agent.tiny import close, in_float64, moved


def make(kind=LearnedCompetence, mode="merged", **settings):
    adapters = BackboneConfig(lora_targets="all_linear", lora_rank=4, lora_mode=mode)
    backbone = Backbone(adapters, seed=0)
    config = LearnedSettings(**{"hidden": 8, "batch_size": 16, "learning_rate": 1e-2, **settings})
    goals = GoalSpace.draw((12, 12, 4, 2, 2), seed=0)
    parts = EstimatorParts(goals, partial(stream, 0), backend=LocalBackend(backbone))
    return kind(parts, config)


def competence(learned):
    return learned.competence(learned.known())


def check_predictions(found, learned, goals):
    predictions = learned.predict(learned._goals, goals)
    with in_float64(learned.backend):
        close(found, predictions, learned.predict(learned._goals, goals))


def outcomes(learned):
    return Outcomes(np.arange(32), (learned._goals.categories == 1).astype(float))


def practise(learned, updates):
    for _ in range(updates):
        learned.update(outcomes(learned))


def snapshot(learned):
    backbone, head = learned.backend.backbone, learned.backend.head
    groups = {name: backbone.adapter(name) for name in ADAPTERS}
    groups["head"] = dict(head.head.named_parameters())
    groups["delayed head"] = dict(head.delayed_head.named_parameters())
    return {g: {k: v.detach().clone() for k, v in values.items()} for g, values in groups.items()}


def train_policy(learned):
    """Change the policy's adapter as an update of the agent does."""
    backbone = learned.backend.backbone
    for parameter in backbone.adapter("policy").values():
        parameter.data += 0.01 * torch.randn(parameter.shape, generator=torch.manual_seed(3))
    backbone.adapter_changed("policy")


# What an update moves; whether current and delayed predictions follow the policy.
ADAPTED = {
    "own": ({"competence", "head"}, [False, False]),
    "shared": ({"policy", "head"}, [True, False]),
    "policy": ({"head"}, [True, False]),
    "frozen": ({"head"}, [False, False]),
    "ignored": ({"competence", "head"}, [True, True]),
}
every_adapter = pytest.mark.parametrize("adapter", ADAPTED)


@every_adapter
def test_what_an_update_moves_and_whose_predictions_follow_the_policy(adapter):
    learned = make(refresh=2, delay=4, adapter=adapter)
    before = snapshot(learned)
    practise(learned, 3)
    delayed = {"competence_delayed", "delayed head"}  # at a refresh
    assert moved(before, snapshot(learned)) - delayed == ADAPTED[adapter][0]
    before = learned.predict(learned._goals, range(32))
    train_policy(learned)
    after = learned.predict(learned._goals, range(32))
    follows = [bool(np.abs(a - b).max() > 1e-4) for a, b in zip(before, after, strict=True)]
    assert follows == ADAPTED[adapter][1]


@every_adapter
def test_candidates_know_what_the_estimators_predict_at_a_refresh(adapter):
    learned = make(refresh=2, delay=4, adapter=adapter)
    for _ in range(7):
        train_policy(learned)
        learned.update(outcomes(learned))
    train_policy(learned)
    learned.update(outcomes(learned))  # the eighth refreshes
    check_predictions(competence(learned), learned, range(32))
    assert np.ptp(competence(learned)[0] - competence(learned)[1]) > 1e-4


def test_delayed_copy_moves_at_a_refresh_only_and_equals_an_old_competence():
    learned = make(refresh=2, delay=4)  # int(4 / 2 + 1) = 3 snapshots
    history = [snapshot(learned)]
    for update in range(1, 11):
        learned.update(outcomes(learned))
        now = snapshot(learned)
        expected = history[max(0, 2 * (update // 2) - 4)]  # delay 0, then 2, then 4 updates
        for key, value in now["competence_delayed"].items():
            assert torch.equal(value, expected["competence"][key]), update
        for key, value in now["delayed head"].items():
            assert torch.equal(value, expected["head"][key]), update
        history.append(now)


def test_predictions_begin_near_the_chance_that_is_given():
    for initial, low, high in ((None, 0.26, 0.9), (0.02, 0.0, 0.26), (0.98, 0.74, 1.0)):
        now, delayed = competence(make(initial=initial))  # 8 weights within 8 ** -0.5
        assert (now == delayed).all()
        assert ((low < now) & (now < high)).all()


def test_a_gradient_step_every_few_updates():
    learned = make(refresh=100, delay=100, update_every=3)
    for update in range(1, 8):
        before = snapshot(learned)
        learned.update(outcomes(learned))
        steps = update in (3, 6)
        assert (moved(before, snapshot(learned)) != set()) == steps
        assert ("competence_loss" in learned.losses()) == steps


def test_recent_episodes_are_drawn_by_rank():
    learned = make(buffer=4)
    learned._buffer.extend([(i, -1, 0.0) for i in range(6)])  # two fall out
    draws = np.bincount(learned._draw_by_recency(20_000), minlength=4) / 20_000
    np.testing.assert_allclose(draws, np.array([1, 2, 3, 4]) / 10, atol=0.015)


def test_a_pool_is_drawn_anew_at_each_refresh_and_scored_now_and_delayed():
    learned = make(refresh=2, delay=4, pool=12)
    assert learned.candidates().tolist() == competence(learned)[0].tolist() == []
    pools = []
    for update in range(1, 9):
        learned.update(outcomes(learned))
        if update % 2 == 0:
            pools.append(learned.candidates())
            check_predictions(competence(learned), learned, pools[-1])
        if update > 1:
            assert learned.candidates() is pools[-1]
            assert len(learned.changed()) == (6 if update % 2 == 0 else 0)
    assert all(len(set(pool.tolist())) == 6 for pool in pools)
    assert len({tuple(sorted(pool.tolist())) for pool in pools}) == 4
    assert np.abs(np.subtract(*competence(learned))).max() > 1e-3


OFTEN = {"refresh": 2, "delay": 4, "regroup": 3, "regions": 5}


def test_a_region_knows_the_mean_of_its_goals():
    groups = make(grouped.LearnedGroups, **OFTEN)
    practise(groups, 7)
    of_goals = groups._now, groups._delayed
    for regions, goals in zip(groups.competence(groups.known()), of_goals, strict=True):
        for region in range(5):
            assert regions[region] == pytest.approx(goals[groups.arms.region == region].mean())
    assert np.abs(np.subtract(*groups.competence(groups.known()))).max() > 1e-3
    assert groups.candidates() is None


def test_regions_are_drawn_anew_every_few_refreshes_and_competence_at_each():
    groups, regions, competences = make(grouped.LearnedGroups, **OFTEN), [], []
    for _ in range(13):
        regions.append(groups.arms.region.copy())
        competences.append(groups.competence(groups.known())[0].copy())
        practise(groups, 1)
    redrawn, refreshed = (
        [n for n in range(1, 13) if (states[n] != states[n - 1]).any()]
        for states in (regions, competences)
    )
    assert set() < set(redrawn) <= {6, 12}  # every third refresh of every second update
    assert refreshed == [2, 4, 6, 8, 10, 12]


def test_kinds_that_lie_apart_get_regions_of_their_own():
    """Two large clusters and one of three goals along one direction, with four of noise."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [200, 100, 3])
    vectors = rng.normal(size=(303, 5)) * [0.05, 1.0, 0.1, 0.1, 0.1]
    vectors[:, 1] = 20 * kind + 0.1 * vectors[:, 1]
    region = grouped.kmeans(grouped.whitened(vectors, grouped.MIN_VARIANCE), 6)
    for number in range(6):
        assert len(set(kind[region == number])) == 1  # and there is one


def test_vectors_wider_than_they_are_many_have_the_same_distances():
    """Those of a large model; zeros behind them change nothing."""
    vectors = np.random.default_rng(0).normal(size=(8, 3))
    wide = np.hstack([vectors, np.zeros((8, 20))])
    close, far = (
        np.linalg.norm(points[:, None] - points, axis=-1)
        for points in (grouped.whitened(wide, 0.01), grouped.whitened(vectors, 0.01))
    )
    np.testing.assert_allclose(close, far, rtol=1e-6)


def test_regions_keep_the_numbers_of_those_that_they_come_from():
    former = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    new = np.array([2, 2, 2, 0, 0, 1, 1, 0])
    assert grouped.renumbered(new, former).tolist() == [0, 0, 0, 1, 1, 2, 2, 1]
