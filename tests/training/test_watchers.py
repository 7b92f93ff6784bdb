"""Observers: they do not affect a run, and estimate what a driver would."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

from magellan.competence import Outcomes
from magellan.competence.evaluated import EvaluatedBuckets, EvaluationSettings
from magellan.config import resolve_run
from magellan.core.columns import COLUMNS
from magellan.core.errors import JobError
from magellan.samplers import SAMPLERS
from magellan.training.loop import Trainer
from magellan.worlds.little_zoo import CATEGORIES, GoalSpace
from tests import runs
from tests.runs import EVALUATED, SPACE, finish, printed, rows


def config(sampler, observers=(), **layer):
    return runs.config(sampler, observers=list(observers), **{**EVALUATED, **layer})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a run of a sampler, without observers or with all estimators."""

    @cache
    def get(sampler, watched):
        run = config(sampler, runs.watchers(sampler) if watched else ())
        return runs.trained(run, tmp_path_factory.mktemp(f"{sampler}-{watched}"))

    return get


KINDS = ("random", "online", "ek_eval", "plr", "alp_gmm", "magellan", "regions", "experimenter")
"""Samplers by what they read: nothing, windows, evaluations, outcomes, features, predictions,
groups that are learned, a chat model.
"""


def test_a_row_has_the_loss_of_the_gradient_steps_behind_it():
    """An estimator that learns at every 7th update; rows of 5 updates: none, 7th, 14th."""
    layer = {"competence": {"update_every": 7}, "budget": {"updates": 15, "record_every": 5}}
    trainer = Trainer(resolve_run("smoke", [{"sampler": "magellan", "goal_space": SPACE}, layer]))
    losses = []
    while not trainer.done:
        before = trainer.updates
        trainer.advance()
        if trainer.updates > before:
            losses.append(trainer.estimators.check(trainer.updates).get("competence_loss"))
    at = COLUMNS["training"].index("competence_loss")
    recorded = [row[at] for row in trainer.record.tables["training"]]
    assert [loss is not None for loss in losses] == [n % 7 == 0 for n in range(1, 16)]
    assert np.isnan(recorded[0])
    assert recorded[1:] == [losses[6], losses[13]]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", KINDS)
def test_watchers_change_nothing_to_the_last_byte(trained, sampler):
    plain, watched = trained(sampler, False), trained(sampler, True)
    for table in ("evaluation", "practice", "training"):
        assert (plain / f"{table}.csv").read_bytes() == (watched / f"{table}.csv").read_bytes()
    driver = SAMPLERS[sampler].estimator
    own = [row for row in rows(watched, "competence") if row["estimator"] == driver]
    assert own == rows(plain, "competence")


@pytest.mark.parametrize("sampler", ["random", "regions"])
def test_every_estimator_predicts_for_the_same_goals(trained, sampler):
    table = rows(trained(sampler, True), "competence")
    assert {row["estimator"] for row in table} == set(runs.watchers(sampler))
    for name in runs.watchers(sampler):
        predictions = [row for row in table if row["estimator"] == name]
        assert len(predictions) == 3 * 2 * len(CATEGORIES)  # evaluations, splits, categories
        assert {row["n"] for row in predictions} == {"4"}
        assert all(float(row["learning_progress"]) <= 1.0 for row in predictions)


def test_cost_is_counted_and_only_where_there_is_one(trained):
    manifest = json.loads((trained("random", True) / "manifest.json").read_text())
    # 80 goals once, at episodes 0, 40, 80; five categories eight times, at 0, 30, 60, 90.
    cost = {"evaluated_goals": 80 * 3, "evaluated_buckets": 5 * 8 * 4}
    assert manifest["estimation_episodes"] == dict.fromkeys(runs.watchers("random"), 0) | cost
    assert manifest["driver"] is None
    assert manifest["episodes"] < 160


def test_each_evaluated_goal_has_a_row_for_each_estimator_where_asked_for(tmp_path):
    settings = config("online", ["expert_buckets"], budget={"record_goals": True})
    runs.trained(settings, tmp_path)
    goals = pd.read_csv(tmp_path / "goals.csv")
    assert tuple(goals) == COLUMNS["goals"]
    played = goals[goals["estimator"] == "per_goal"]
    keys = ["episode", "split", "category"]
    for table, of_goals, value, by, roundings in (
        ("competence", goals, "competence", [*keys, "estimator"], 2),
        ("evaluation", played, "success", keys, 1),
    ):
        means = pd.read_csv(tmp_path / f"{table}.csv")
        found = of_goals.groupby(by)[value].agg(["mean", "size"]).reset_index()
        both = means.merge(found, on=by)
        assert (len(both), list(both["n"])) == (len(means), list(both["size"]))
        assert list(both["mean"]) == printed(list(both[value]), 5, roundings)
    assert not goals[goals["category"] == "impossible"]["success"].any()


def test_a_watcher_that_diverges_ends_the_run_by_name(monkeypatch):
    trainer = Trainer(config("random", ["learned"]))
    learned = trainer.estimators.by_name["learned"]
    monkeypatch.setattr(learned, "losses", lambda: {"competence_loss": float("nan")})
    with pytest.raises(JobError, match="competence_loss of learned"):
        finish(trainer)


def test_an_evaluation_by_hand():
    """Two goals per category, of which the second succeeds; drawn for their own category."""
    goals = GoalSpace.draw((2, 2, 2, 2, 0), 0)
    settings = EvaluationSettings(every=10, episodes=50)
    estimator = EvaluatedBuckets(goals, settings, np.random.default_rng(0))
    chosen = estimator.goals_to_evaluate(0)
    assert goals.categories_at(chosen).tolist() == [c for c in range(4) for _ in range(50)]
    assert len(set(chosen.tolist())) == 8
    success = (chosen % 2 == 1).astype(float)
    estimator.record_evaluation(Outcomes(chosen, success))
    assert estimator.goals_to_evaluate(9) is None
    everything = np.arange(5)
    assert estimator.competence(everything)[0].tolist() == [0] * 5  # not before an update
    estimator.update(Outcomes(np.array([0, 1]), np.array([1, 1])))  # practice is not looked at
    now, delayed = estimator.competence(everything)
    rates = [success[50 * c : 50 * (c + 1)].mean() for c in range(4)]
    assert now.tolist() == [*rates, 0.0]
    assert delayed.tolist() == [0] * 5
    assert estimator.changed().tolist() == [0, 1, 2, 3]
    estimator.update(Outcomes(np.zeros(0, int), np.zeros(0)))
    assert estimator.changed().tolist() == []
    again = estimator.goals_to_evaluate(25)
    estimator.record_evaluation(Outcomes(again, np.ones(len(again))))
    assert estimator.goals_to_evaluate(29) is None
    estimator.update(Outcomes(np.zeros(0, int), np.zeros(0)))
    now, delayed = estimator.competence(everything)
    assert (now.tolist(), delayed.tolist()) == ([1, 1, 1, 1, 0], [*rates, 0])
    assert estimator.cost == 400
    assert estimator.goals_to_evaluate(30) is not None
