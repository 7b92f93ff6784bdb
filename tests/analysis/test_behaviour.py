"""What was practised and believed, and what it cost, from tables whose answer is known."""

import numpy as np
import pytest

from analysis.statistics.practice_shares import explored_shares
from analysis.studies import behaviour
from analysis.tables.grid import Algorithm
from analysis.tables.results import rows_where
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown, with_configs, with_tables

SPACE = synthetic.GOAL_SPACE
MAGELLAN, RANDOM = Algorithm("magellan", "default"), Algorithm("random", "default")
ONLINE, EK = Algorithm("online", "default"), Algorithm("ek_online", "default")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return synthetic.combined(tmp_path_factory.mktemp("runs"), seeds=(0, 1, 2), episodes=8_000)


def test_a_shift_is_found():
    points = np.arange(0, 16_001, 1_000)
    observed = 1 / (1 + np.exp(-(points - 6_000) / 800))
    late = np.interp(points - 2_000, points, observed)
    assert behaviour.lag(points, observed, observed) == 0
    assert behaviour.lag(points, observed, late) == pytest.approx(2_000, abs=134)
    assert np.isnan(behaviour.lag(points, observed * 0.2, late))


def test_the_end_of_training_has_its_own_shares(results):
    """Grasping only, but plants only in the last third of a run."""
    practice = results.tables["practice"].copy()
    late = practice["episode"] > practice["episode"].max() * 2 / 3
    assert late.any()
    assert not late.all()
    chosen = np.where(late, "grow_plant", "grasp")
    practice["n"] = np.where(practice["category"] == chosen, 10, 0)
    made_up = with_tables(results, practice=practice)
    whole = behaviour.practice_shares(made_up, MAGELLAN, SPACE)
    end = behaviour.practice_shares(made_up, MAGELLAN, SPACE, behaviour.LATE)
    assert (whole["grasp"] > 0.5).all()
    assert (end["grow_plant"] == 1.0).all()


def test_no_exploitation_is_estimated_where_exploration_is_not_known(results):
    assert behaviour.exploited_shares(results, RANDOM, SPACE) is None
    for algorithm in (EK, ONLINE):
        assert behaviour.exploited_shares(results, algorithm, SPACE) is not None
    unknown = with_configs(results, world="far")
    unknown.__dict__["categories"] = results.categories
    assert behaviour.exploited_shares(unknown, ONLINE, SPACE) is None
    training = results.tables["training"]
    unrecorded = with_tables(results, training=training[training["sampler"] != "online"])
    assert behaviour.exploited_shares(unrecorded, ONLINE, SPACE) is None


def test_the_mix_of_goals_is_that_of_the_last_phase_or_of_the_manifest(results):
    other = with_configs(results, phases=[{}, {"goal_space": "10-10-0-0-0"}])
    mix = explored_shares(other, ONLINE, SPACE)
    never = dict.fromkeys(("grow_plant", "grow_herbivore", "grow_carnivore"), 0.0)
    assert mix == {"impossible": 0.5, "grasp": 0.5, **never}
    assert explored_shares(other, EK, SPACE) == mix
    for run in other.manifest["runs"]:
        run["goal_counts"] = {"grasp": 1, "grow_plant": 3}
    mix = explored_shares(other, ONLINE, SPACE)
    assert (mix["grasp"], mix["grow_plant"], mix["impossible"]) == (0.25, 0.75, 0.0)


@pytest.mark.parametrize(
    ("algorithm", "config", "even"),
    [
        (MAGELLAN, {}, False),
        (MAGELLAN, {"samplers": {"estimator": "expert_buckets"}}, True),
        (MAGELLAN, {"samplers": {"estimator": "learned_groups"}}, None),
        (ONLINE, {"samplers": {"estimator": "one_that_is_not_here"}}, None),
        (EK, {}, True),
        (EK, {"ek_online": {"explore": "goals"}}, False),
    ],
)
def test_exploration_is_over_the_arms_of_the_estimator(results, algorithm, config, even):
    found = explored_shares(with_configs(results, **config), algorithm, SPACE)
    counts = np.array([1_000, 400, 200, 100, 50])
    expected = None if even is None else np.full(5, 0.2) if even else counts / counts.sum()
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_allclose(list(found.values()), expected)


def test_collapses_are_counted_and_what_is_learnt_at_the_end(results):
    falls = (0.6, 0.1, 0.9, 0.3, 0.1, 0.51, 0.51)
    seen = {(1, 1_000 * at): success for at, success in enumerate(falls)}
    seen |= {(0, 8_000): 0.51, (2, 8_000): 0.5}  # the bar is .5
    evaluation = results.tables["evaluation"]
    online = (evaluation["sampler"] == "online") & (evaluation["split"] == "train")
    grasp = online & (evaluation["category"] == "grasp")
    points = zip(evaluation["seed"], evaluation["episode"], strict=True)
    own = np.where(grasp, [seen.get(point, 0.0) for point in points], 0.0)
    success = np.where(online, own, evaluation["success"])
    made_up = with_tables(results, evaluation=evaluation.assign(success=success))
    # Two falls: .6 to .1, and the last .51 to the 0 behind it; .9 falls to .3 only.
    assert behaviour.collapses(made_up, ONLINE, SPACE) == (2, 4)
    runs = behaviour.learnt(made_up, ONLINE, SPACE)
    assert runs["grasp"].to_dict() == {0: True, 1: False, 2: False}
    assert not runs.drop(columns="grasp").to_numpy().any()
    table = to_markdown(behaviour, made_up)
    assert "| Online-ALP | 1 of 3 | 0 of 3 | 0 of 3 | 0 of 3 |" in table


def test_beliefs_are_those_of_the_driving_estimator(results):
    frame = behaviour.beliefs(results, MAGELLAN, SPACE)
    assert sorted(set(frame["seed"])) == [0, 1, 2]
    where = {"sampler": "magellan", "estimator": "learned", "split": "train"}
    competence = results.table("competence", seed=2, category="grasp", **where)
    row = rows_where(frame, seed=2, category="grasp").iloc[0]
    area = np.trapezoid(competence["competence"], competence["episode"])
    assert row["competence"] == pytest.approx(area / 8_000)
    settled = competence[competence["episode"] > 8_000 / 8]
    assert 0 < len(settled) < len(competence)
    assert row["learning_progress"] == pytest.approx(settled["learning_progress"].mean())
    impossible = frame[frame["category"] == "impossible"]
    assert impossible["lag"].isna().all()
    assert np.allclose(impossible["error"], impossible["competence"].abs())


def test_all_is_of_the_goals_that_are_practised_at_the_end(results):
    """Runs that practise unseen goals: success and predictions are those of unseen goals."""
    evaluation = results.tables["evaluation"]
    trained = evaluation["split"] == "train"
    frame = evaluation.assign(success=evaluation["success"].where(trained, 0.0))
    unseen = with_configs(results, goals={"seed": 0, "split": "unseen"})
    made_up = with_tables(unseen, evaluation=frame)
    assert not behaviour.learnt(made_up, EK, SPACE).to_numpy().any()
    assert behaviour.collapses(made_up, EK, SPACE) == (0, 0)
    beliefs = behaviour.beliefs(made_up, MAGELLAN, SPACE)
    assert np.allclose(beliefs["error"], beliefs["competence"].abs())
    assert "|predicted - observed|, unseen goals, goal space" in to_markdown(behaviour, made_up)
