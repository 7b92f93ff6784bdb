"""Runs with a budget of environment steps or policy updates instead of episodes."""

import json
from functools import cache

import pytest

from magellan.config import UNIT_COLUMNS
from magellan.jobs import progress
from magellan.training.loop import Trainer
from tests import runs
from tests.runs import finish, rows, trained

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
