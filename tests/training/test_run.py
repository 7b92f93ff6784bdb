"""Whole runs: evaluated without side effects, resumed anywhere, with curves where asked for."""

import importlib.util
import json

import pytest

from magellan.cli import main
from magellan.config import UNIT_COLUMNS, identity, resolve_run
from magellan.core.errors import StoppedEarly
from magellan.jobs import display, run
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.run import train
from magellan.training.answers import make_trainer
from magellan.training.loop import Trainer
from tests import runs
from tests.agent.tiny import write
from tests.runs import EVALUATED, SPACE, contents, finish, refusal, rows, tables, trained, watchers
from tests.training.test_answers import config as answers


def config(sampler="magellan", **budget):
    return runs.config(sampler, budget=budget)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return tables(trained(config(), tmp_path_factory.mktemp("undisturbed")))


def test_evaluation_touches_no_training_stream(undisturbed, tmp_path):
    rarely = tables(trained(config(evaluate_every=120, evaluation_goals=1), tmp_path))
    for name in ("practice", "training"):
        assert rarely[name] == undisturbed[name]
    assert rarely["evaluation"] != undisturbed["evaluation"]


@pytest.mark.parametrize("more", [[], ["--identity"]])
def test_a_finished_run_suggests_next_commands_except_to_the_workflow(more, tmp_path, capfd):
    folder = tmp_path / "my run"
    words = ["train", "--preset", "smoke", "--goal-space", SPACE, "--seed", "3"]
    known = ["--identity", identity(config(sampler="magellan"))] if more else []
    assert main([*words, "--output", str(folder), "--sampler", "magellan", *known]) == 0
    hints = [line for line in capfd.readouterr().err.splitlines() if line.startswith("next: ")]
    us = "next: python -m magellan"
    expected = [f"{us} watch '{folder}'", f"{us} export '{folder}' --output 'agents/my run'"]
    assert hints == ([] if more else expected)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["record_goals", "record_outcomes"])
def test_an_additional_table_changes_no_other(key, undisturbed, tmp_path):
    recorded = config(**{key: True})
    assert tables(trained(recorded, tmp_path)) == undisturbed
    assert identity(recorded) != identity(config())


@pytest.mark.slow
def test_a_run_with_the_papers_update_rule(tmp_path):
    """The preset `paper` at toy size: 3-step returns, separate steps, learned temperature."""
    write(tmp_path, "t5")
    layer = {
        "goal_space": "20-10-5-5-5",
        "backbone": {"model": str(tmp_path), "lora_rank": 2},
        "agent": {"num_envs": 4, "steps_per_update": 8, "batch_size": 8, "critic_hidden": [8]},
        "competence": {"batch_size": 8, **OFTEN},
        "budget": {**SHORT, "evaluation_goals": 2, "record_every": 1},
    }
    trainer = finish(Trainer(resolve_run("paper", [layer])))
    assert trainer.updates > 11
    temperatures = [row[6] for row in trainer.record.tables["training"]]
    assert temperatures[10] == temperatures[0]  # the actor rests for 11 updates
    assert temperatures[-1] < temperatures[10]  # then the released rule only lets it fall


STOPS = (0, 5, 12)  # updates
PHASES = [{"until": 60, "sampler": "magellan", "seed": 5}, {"goals": {"split": "unseen"}}]
OFTEN, GOALS = {"refresh": 2, "delay": 4}, {"record_goals": True}
GROUPS = {**OFTEN, "regroup": 3, "regions": 6}
ERRORS = {"false_positive": 0.3, "false_negative": 0.2}
SHORT = {"episodes": 40, "evaluate_every": 40}
RUNS = {
    "steps": runs.config(budget={"steps": 700, "evaluate_every": 300, "record_outcomes": True}),
    "watched by all": runs.config(observers=watchers("magellan"), budget=GOALS, **EVALUATED),
    "shared": runs.config(competence={**OFTEN, "adapter": "shared"}, budget=SHORT),
    "ignored": runs.config(competence={**OFTEN, "adapter": "ignored"}, budget=SHORT),
    "ignored, then fewer goals": runs.config(
        competence={"refresh": 1, "delay": 20, "adapter": "ignored"},
        phases=[{"until": 20}, {"goal_space": "9-8-7-6-5"}],
        budget={"episodes": 40, "evaluate_every": 20, "practice_window": 20},
    ),
    "regions": runs.config("regions", competence=GROUPS),
    "asked": runs.config(
        "experimenter_goals",
        experimenter_goals={"ask_every": 3, "retrieved": 3},
        phases=[{"until": 60, "sampler": "experimenter"}, {"goals": {"split": "unseen"}}],
        experimenter={"ask_every": 3},
    ),
    "an evaluator that errs": runs.config(
        "proposer", rewards={**ERRORS, "model": "scripted"}, proposer={"ask_every": 3}
    ),
    "phases": runs.config("online", phases=PHASES, observers=["learned", "expert_buckets"]),
    "answers": answers("plr", observers=["learned"], goal_space="8-8-8-4-4-2-2"),
    "all goals": runs.config("online", goal_space="all", competence={"pool": 25_000}, budget=SHORT),
}


def written(trainer, folder):
    folder.mkdir()
    trainer.record.write(folder)
    return contents(folder)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "steps")) for name in RUNS]
)
def test_stopped_and_resumed_it_leaves_the_same_files(name, tmp_path):
    """Episodes that ended before the first update reach the sampler in it."""
    straight, checkpoints, states = make_trainer(RUNS[name]), Checkpoints(tmp_path, RUNS[name]), {}
    while not straight.done:
        if straight.updates in STOPS:
            path = checkpoints.save(straight.state_dict())
            assert path.stat().st_size < 4_000_000  # no entry for each of millions of goals
            states[straight.updates] = checkpoints.load().state
        straight.advance()
    expected = written(straight, tmp_path / "straight")
    assert set(states) >= set(STOPS[:2])
    for updates, state in states.items():
        resumed = make_trainer(RUNS[name])
        resumed.load_state_dict(state)
        assert written(finish(resumed), tmp_path / str(updates)) == expected


THERE = importlib.util.find_spec("tensorboard") is not None


def train_with_curves(folder, resume=False):
    train(config(), folder, resume, "none", log="tensorboard")


def curves(folder):
    """Points as TensorBoard shows them: a new writer discards points past its start."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / display.TENSORBOARD), {"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in tags}


@pytest.mark.skipif(THERE, reason="tensorboard is installed")
def test_a_missing_package_is_refused_before_any_work(tmp_path):
    assert "pip install tensorboard" in refusal(train_with_curves, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not THERE, reason="tensorboard is not installed")
def test_curves_have_every_row_once_also_after_a_resume(tmp_path, monkeypatch):
    train_with_curves(tmp_path / "whole")
    assert tables(tmp_path / "whole") == tables(trained(config(), tmp_path / "plain"))
    whole = curves(tmp_path / "whole")
    kinds = {"success", "competence", "learning_progress", "practice", "training"}
    assert {tag.split("/")[0] for tag in whole} == kinds
    for row in rows(tmp_path / "whole", "evaluation"):
        point = (int(row["update"]), pytest.approx(float(row["success"])))
        assert point in whole[f"success/{row['split']}/{row['category']}"]

    class Stopper(run.Stopper):
        asked = 0

        @property
        def reason(self):
            Stopper.asked += 1
            return "asked to" if Stopper.asked == 12 else None

    monkeypatch.setattr(run, "Stopper", Stopper)
    with pytest.raises(StoppedEarly):
        train_with_curves(tmp_path / "cut")
    train_with_curves(tmp_path / "cut", resume=True)
    assert curves(tmp_path / "cut") == whole


STEPS = {"steps": 700, "evaluate_every": 300, "episodes": 7, "record_outcomes": True}
UPDATES = {"updates": 21, "evaluate_every": 10, "episodes": 9, "record_outcomes": True}
PLANNED = {"steps": (STEPS, [0, 300, 600, 700]), "updates": (UPDATES, [0, 10, 20, 21])}
# 8 environments are stepped together, 4 times per round.
ROUND = 32


@pytest.mark.parametrize("unit", PLANNED)
def test_evaluations_are_at_planned_numbers_of_the_unit(unit, tmp_path):
    budget, planned = PLANNED[unit]
    folder, column = trained(config(**budget), tmp_path), UNIT_COLUMNS[unit]
    manifest = json.loads((folder / "manifest.json").read_text())
    filling = manifest["steps"] // ROUND - manifest["updates"]
    assert 1 <= filling <= 3
    for table in ("evaluation", "competence"):
        keys = ("update", "step", "episode")
        points = [*{tuple(int(row[key]) for key in keys): None for row in rows(folder, table)}]
        assert [point[keys.index(column)] for point in points] == planned
        for update, step, episode in points:
            # One update per round, except in the first rounds, which fill the first batch.
            steps = step if unit == "updates" else -(-step // ROUND) * ROUND
            assert steps == (ROUND * (update + filling) if update else 0)
            outcomes = [row for row in rows(folder, "outcomes") if int(row["update"]) <= update]
            assert episode == len(outcomes)
        assert points[-1][::2] == (manifest["updates"], manifest["episodes"])
    assert manifest[unit] == (planned[-1] if unit == "updates" else -(-700 // ROUND) * ROUND)


def test_without_a_terminal_a_bar_is_lines_which_never_pass_the_end(monkeypatch, capsys):
    monkeypatch.setattr(display.Progress, "SECONDS_PER_LINE", 0.0)
    trainer = Trainer(config("random", **STEPS))
    shown = display.Progress(trainer, "bar")
    finish(trainer)
    assert trainer.spent == 704  # rounds of 32
    shown.show()
    shown.result(12.3)
    output = capsys.readouterr().err
    assert "\r" not in output
    assert "700 of 700 steps, " in output
    assert "complete, 700 steps in 12 s. Success at the end on train goals: grasp " in output
    assert output.count("grow_carnivore") == 2  # of the last evaluation alone
