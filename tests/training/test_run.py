"""Whole runs: repeatable, evaluated without side effects."""

import pytest

from magellan.cli import main
from magellan.config import RunConfig, identity, resolve_run
from magellan.training.loop import Trainer
from tests import runs
from tests.runs import SPACE, tables, trained


def config(sampler: str = "magellan", **budget) -> RunConfig:
    return runs.config(sampler, budget=budget)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    return tables(trained(config(), tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.slow
def test_same_seed_same_tables_and_another_seed_others(undisturbed, tmp_path):
    assert tables(trained(config(), tmp_path / "same")) == undisturbed
    other = config().model_copy(update={"seed": 4})
    assert tables(trained(other, tmp_path / "other"))["practice"] != undisturbed["practice"]


def test_evaluation_touches_no_training_stream(undisturbed, tmp_path):
    rarely = tables(trained(config(evaluate_every=120, evaluation_goals=1), tmp_path))
    for name in ("practice", "training"):
        assert rarely[name] == undisturbed[name]
    assert rarely["evaluation"] != undisturbed["evaluation"]


def test_state_before_the_first_update_is_kept_too():
    """Episodes that ended while the replay was filling reach the sampler's first update."""
    layer = {"agent": {"batch_size": 500, "replay_capacity": 500}, "goal_space": SPACE}
    trainers = [Trainer(resolve_run("smoke", [{**layer, "sampler": "online"}])) for _ in range(2)]
    for _ in range(6):
        trainers[0].advance()
    assert trainers[0].updates == 0
    trainers[1].load_state_dict(trainers[0].state_dict())
    for trainer in trainers:
        while trainer.updates < 2:
            trainer.advance()
    assert trainers[0].record.tables == trainers[1].record.tables
    windows = [trainer.sampler.estimator.state_dict() for trainer in trainers]
    assert str(windows[0]) == str(windows[1])
    assert trainers[0].episodes == trainers[1].episodes > 6


@pytest.mark.parametrize("more", [[], ["--identity"]])
def test_a_finished_run_suggests_next_commands_except_to_the_workflow(more, tmp_path, capfd):
    folder = tmp_path / "my run"
    words = ["train", "--preset", "smoke", "--goal-space", SPACE, "--seed", "3"]
    known = ["--identity", identity(config(sampler="magellan"))] if more else []
    assert main([*words, "--output", str(folder), "--sampler", "magellan", *known]) == 0
    hints = [line for line in capfd.readouterr().err.splitlines() if line.startswith("next: ")]
    expected = [
        f"next: python -m magellan watch '{folder}'",
        f"next: python -m magellan export '{folder}' --output 'agents/my run'",
    ]
    assert hints == ([] if more else expected)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["record_goals", "record_outcomes"])
def test_an_additional_table_changes_no_other(key, undisturbed, tmp_path):
    recorded = config(**{key: True})
    assert tables(trained(recorded, tmp_path)) == undisturbed
    assert identity(recorded) != identity(config())
