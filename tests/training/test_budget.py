"""Runs with a budget of environment steps or policy updates instead of episodes."""

import json
from functools import cache

import pytest

from magellan.config import UNIT_COLUMNS, resolve_run
from magellan.jobs import progress
from magellan.jobs.run import train
from magellan.training.loop import Trainer
from tests import runs
from tests.runs import SPACE, finish, rows, trained

BUDGETS = {
    "steps": {"steps": 700, "evaluate_every": 300, "episodes": 7, "record_outcomes": True},
    "updates": {"updates": 21, "evaluate_every": 10, "episodes": 9, "record_outcomes": True},
}
PLANNED = {"steps": [0, 300, 600, 700], "updates": [0, 10, 20, 21]}
# 8 environments are stepped together, 4 times per round.
ROUND = 32


def config(unit: str, sampler: str = "magellan"):
    return runs.config(sampler, budget=BUDGETS[unit])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return cache(lambda unit: trained(config(unit), tmp_path_factory.mktemp(unit)))


@pytest.mark.parametrize("unit", BUDGETS)
def test_evaluations_are_at_planned_numbers_of_the_unit(unit, undisturbed):
    folder = undisturbed(unit)
    column = UNIT_COLUMNS[unit]
    manifest = json.loads((folder / "manifest.json").read_text())
    filling = manifest["steps"] // ROUND - manifest["updates"]
    assert 1 <= filling <= 3
    for table in ("evaluation", "competence"):
        keys = ("update", "step", "episode")
        points = [tuple(int(row[key]) for key in keys) for row in rows(folder, table)]
        points = list(dict.fromkeys(points))
        assert [point[keys.index(column)] for point in points] == PLANNED[unit]
        for update, step, episode in points:
            # One update per round, except in the first rounds, which fill the first batch.
            steps = step if unit == "updates" else -(-step // ROUND) * ROUND
            assert steps == (ROUND * (update + filling) if update else 0)
            outcomes = [row for row in rows(folder, "outcomes") if int(row["update"]) <= update]
            assert episode == len(outcomes)
        assert points[-1][0] == manifest["updates"]
        assert points[-1][2] == manifest["episodes"]
    assert manifest["steps"] == -(-PLANNED["steps"][-1] // ROUND) * ROUND or unit == "updates"
    assert manifest["updates"] == 21 or unit == "steps"


@pytest.mark.parametrize("unit", BUDGETS)
def test_practice_counts_every_finished_episode(unit, undisturbed):
    folder = undisturbed(unit)
    episodes = json.loads((folder / "manifest.json").read_text())["episodes"]
    assert episodes > 30
    assert episodes % 30
    table = rows(folder, "practice")
    assert sum(int(row["n"]) for row in table) == episodes
    ends = list(dict.fromkeys(int(row["episode"]) for row in table))
    assert ends == [*range(30, episodes, 30), episodes]


def test_without_a_terminal_a_bar_is_lines_which_never_pass_the_end(monkeypatch, capsys):
    monkeypatch.setattr(progress.Progress, "SECONDS_PER_LINE", 0.0)
    trainer = Trainer(config("steps", "random"))
    shown = progress.Progress(trainer, "bar")
    finish(trainer)
    assert trainer.spent == 704  # rounds of 32
    shown.show()
    shown.result(12.3)
    output = capsys.readouterr().err
    assert "\r" not in output
    assert "700 of 700 steps, " in output
    assert "complete, 700 steps in 12 s. Success at the end on train goals: grasp " in output
    assert output.count("grow_carnivore") == 2  # of the last evaluation alone


def test_estimators_ask_by_episodes(monkeypatch):
    """Estimators that request episodes count training episodes, whatever the budget's unit."""
    layer = {"evaluated_buckets": {"every": 10, "episodes": 1}, "sampler": "ek_eval"}
    settings = resolve_run("smoke", [layer, {"goal_space": SPACE, "budget": {"updates": 12}}])
    trainer = Trainer(settings)
    episodes, ask = [], trainer.estimators.play_wanted
    monkeypatch.setattr(
        trainer.estimators, "play_wanted", lambda n, play: (episodes.append(n), ask(n, play))[1]
    )
    finish(trainer)
    assert len(episodes) >= 12
    evaluated = trainer.estimators.cost()["evaluated_buckets"] // 5
    assert evaluated == len({n // 10 for n in episodes})


def test_a_run_without_a_finished_episode_has_its_tables(tmp_path):
    layer = {"goal_space": SPACE, "budget": {"steps": 1, "evaluate_every": 1}}
    settings = resolve_run("smoke", [layer, {"agent": {"steps_per_update": 8}}])
    manifest = train(settings, tmp_path, resume=False, progress="none")
    assert manifest["steps"] == 8
    assert {row["step"] for row in rows(tmp_path, "evaluation")} == {"0", "1"}
    assert len(rows(tmp_path, "practice")) == 5


@pytest.mark.parametrize(
    ("done", "seconds", "words"),
    [
        (0, 20.0, "time left n/a"),
        (1, 20.0, "0.05 steps/s, 1980 s left"),
        (94, 10.0, "9.4 steps/s, 1 s left"),
    ],
)
def test_speed_and_time_left_of_slow_runs(done, seconds, words):
    assert progress.describe_speed(done, seconds, 100 - done, "steps") == words
