"""Runs whose goals and sampler change during training."""

import numpy as np
import pytest

from magellan.competence import Outcomes, make_estimator
from magellan.competence.registry import ESTIMATORS
from magellan.config import beginning, resolve_run
from magellan.training.estimators import estimator_parts
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS
from tests import runs
from tests.agent.tiny import close, in_float64
from tests.runs import SPACE, finish, tables
from tests.runs import rows as table

SAME = [{"until": 60}, {}]
"""Nothing changes at 60 episodes."""
UNSEEN = {"goals": {"split": "unseen"}, "explore_anew": True}
NEW = [{"until": 60, "sampler": "magellan", "seed": 5}, UNSEEN]
"""Other goals, another seed, and the run's own sampler."""


def config(phases, sampler="magellan", **layer):
    layer["evaluated_buckets"] = {"every": 50, "episodes": 2}
    return runs.config(sampler, phases=phases, **layer)


def trained(folder, *arguments, **named):
    return runs.trained(config(*arguments, **named), folder)


def without_phase(folder):
    contents = {name: table(folder, name) for name in tables(folder)}
    for rows in contents.values():
        for row in rows:
            row.pop("phase", None)
    return contents


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["magellan", "random"])
def test_two_equal_phases_are_one_long_phase(sampler, tmp_path):
    switched = trained(tmp_path / "two", SAME, sampler)
    plain = trained(tmp_path / "one", [], sampler)
    assert without_phase(switched) == without_phase(plain)
    phases = {(row["phase"], int(row["episode"]) > 60) for row in table(switched, "practice")}
    assert phases == {("1", False), ("2", True)}
    assert "phase" not in table(plain, "practice")[0]


@pytest.mark.parametrize("unit", [{"steps": 700, "evaluate_every": 100}, {"updates": 20}])
def test_phases_end_by_what_the_budget_counts(unit, tmp_path):
    end = next(iter(unit.values())) // 2
    column = {"steps": "step", "updates": "update"}[next(iter(unit))]
    phases = [{"until": end}, {"goals": {"seed": 8}}]
    folder = trained(tmp_path, phases, "online", budget={"evaluate_every": 7, **unit})
    rows = table(folder, "evaluation")
    last = {int(row[column]) for row in rows if row["phase"] == "1"}
    begun = {int(row[column]) for row in rows if row["phase"] == "2"}
    assert (max(last), min(begun), max(begun)) == (end, end, 2 * end)


def test_each_phase_is_evaluated_on_its_own_goals(tmp_path):
    every = ["learned", "per_goal", "expert_buckets", "evaluated_buckets"]
    rows = table(trained(tmp_path, NEW, "online", observers=every), "evaluation")
    points = {(row["phase"], int(row["episode"])) for row in rows}
    assert points == {("1", 0), ("1", 60), ("2", 60), ("2", 120)}
    trainer = Trainer(config(NEW, "online"))
    trainer._begin_phase(trainer.phases[1])
    sets, drawn = trainer._evaluation, WORLDS["little_zoo"].goals(SPACE, 0)
    assert sets["unseen"].space is trainer.goals
    assert trainer.goals.split == "unseen"
    evaluated = sets["train"].space.codes_at(sets["train"].positions)
    assert set(evaluated) <= set(drawn.codes_at(np.arange(len(drawn))))
    assert trainer.estimators.driver == "per_goal"


def test_a_checkpoint_at_a_switch_to_a_rule_with_advantages_is_gone_on_from():
    """Episodes that run on began without a value, and get that of where they are."""
    run = config([{"until": 60, "sampler": "random"}, {}], "plr")
    first, second = Trainer(run), Trainer(run)
    while first.phase.number == 1:
        first.advance()
    assert (first.collector._values != 0.0).all()
    second.load_state_dict(first.state_dict())
    assert repr(finish(second).record.tables) == repr(finish(first).record.tables)


def test_episodes_over_the_end_of_a_beginning_count_in_the_next_phase(tmp_path):
    """Many environments end episodes together: more than `until` of them."""
    phases = [{"until": 33}, {"sampler": "random"}]
    layer = {"agent": {"num_envs": 32}, "budget": {"practice_window": 5}}
    run = config(phases, "random", **layer)
    runs.trained(beginning(run), tmp_path / "1")
    runs.trained(run, tmp_path / "2", tmp_path / "1")
    runs.trained(run, tmp_path / "whole")
    assert tables(tmp_path / "2") == tables(tmp_path / "whole")
    rows = table(tmp_path / "whole", "practice")
    assert 33 in {int(row["episode"]) for row in rows}
    assert sum(int(row["n"]) for row in rows) == 120
    first = table(tmp_path / "1", "practice")
    assert sum(int(row["n"]) for row in first) == 33


def make(name):
    run = resolve_run("smoke", [{"goal_space": SPACE, "seed": 3, "competence": {"pool": 100}}])
    return make_estimator(name, estimator_parts(run), run.section(ESTIMATORS[name].section))


def practise(estimator, successes=8):
    for number in range(successes):
        goals = np.arange(40, 60)
        estimator.update(Outcomes(goals, np.full(20, float(number % 2 or number > 4))))


def test_windows_of_goals_that_stay_are_kept():
    estimator = make("per_goal")
    practise(estimator)
    before = WORLDS["little_zoo"].goals(SPACE, 0)
    after = WORLDS["little_zoo"].goals("40-30-10-5-5", 0)
    estimator.set_goal_space(after)
    where = after.positions_in(before, np.arange(40, 60))
    stayed, others = where[where >= 0], np.setdiff1d(np.arange(len(after)), where)
    assert len(stayed)
    now, delayed = estimator.competence(stayed)
    assert (now > 0.5).all()
    assert (delayed > 0).all()
    assert not np.any(estimator.competence(others))
    estimator.set_goal_space(WORLDS["little_zoo"].goals(SPACE, 0, "unseen"))
    assert len(estimator.known()) == 0


def test_categories_keep_what_is_known_of_them():
    estimator = make("expert_buckets")
    practise(estimator)
    before = estimator.competence(estimator.known())
    new = WORLDS["little_zoo"].goals(SPACE, 0, "unseen")
    estimator.set_goal_space(new)
    assert np.array_equal(before, estimator.competence(estimator.known()))
    grasp = new.nth(1, np.arange(new.sizes[1]))
    assert (estimator.predict(new, grasp)[0] > 0.5).all()


def test_the_learned_estimator_knows_new_goals_by_all_its_snapshots():
    estimator = make("learned")
    practise(estimator, successes=20)
    new = WORLDS["little_zoo"].goals("300-60-30-9-9", 4, "unseen")
    expected_now, _ = estimator.predict(new, np.arange(len(new)))
    estimator.set_goal_space(new)
    where = estimator.candidates()
    now, delayed = estimator.competence(estimator.known())
    assert len(now) == len(where)
    assert np.abs(now - delayed).mean() > 0
    predictions = estimator.predict(new, where)
    # The delayed copy is the oldest snapshot; `now` is from the last refresh, or current.
    with in_float64(estimator.backend):
        close(delayed, predictions[1], estimator.predict(new, where)[1])
    assert np.abs(now - expected_now[where]).max() < 0.2


def test_epsilon_goes_on_unless_a_phase_explores_anew():
    for anew in (False, True):
        phases = [{"until": 60, "sampler": "magellan"}, {"explore_anew": anew}]
        trainer = Trainer(config(phases, "online"))
        while trainer.phase.number == 1:
            before = trainer.sampler.epsilon
            trainer.advance()
        assert trainer.sampler.epsilon == (1.0 if anew else before)
