"""Checkpoints kept for good, by number of episodes."""

import shutil

import pytest

from magellan.config import resolve_run
from magellan.core.errors import InputError
from magellan.jobs.checkpoint import decode
from magellan.jobs.run import train
from magellan.launcher.run import resumes
from tests.runs import tables, trained

LAYER = {"sampler": "random", "goal_space": "40-8-4-2-2", "budget": {"keep_every": 50}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(config(), tmp_path_factory.mktemp("kept") / "run")


def config(**layer):
    return resolve_run("smoke", [{**LAYER, **layer}])


def test_one_for_each_number_that_was_passed(whole):
    assert sorted(path.name for path in whole.iterdir() if path.name.isdecimal()) == ["100", "50"]
    for number in (50, 100):
        [path] = (whole / str(number) / "checkpoints").iterdir()
        episodes = decode(path)[1]["trainer"]["episodes"]
        assert number <= episodes < number + 50
    assert "kept 50/checkpoints/00000001.safetensors" in (whole / "run.log").read_text()


def test_a_run_goes_on_from_one(whole, tmp_path):
    output = tmp_path / "again"
    assert resumes(config(), output, whole / "50")
    train(config(), output, True, "none")
    assert tables(output) == tables(whole)
    assert sorted(path.name for path in output.iterdir() if path.name.isdecimal()) == ["100"]


def test_what_cannot_be_gone_on_from(whole, tmp_path):
    """For a run's own checkpoint, the error does not ask to train another run again."""
    assert not resumes(config(), tmp_path / "run", None)
    with pytest.raises(InputError, match=r"^rl_script_args.loading_path: .* holds no checkpoint; "):
        resumes(config(), tmp_path / "run", tmp_path)
    with pytest.raises(InputError, match=r"^rl_script_args.loading_path: .*another configuration"):
        resumes(config(seed=1), tmp_path / "run", whole / "50")


def test_what_another_run_has_kept_is_not_taken_for_this_ones(whole, tmp_path):
    """Its checkpoints were moved away, as an error advises; kept ones are still present."""
    shutil.copytree(whole / "50", tmp_path / "run" / "50")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"/50/checkpoints/00000001.safetensors belongs to .*seed"):
        train(config(seed=1), tmp_path / "run", True, "none")
    with pytest.raises(InputError, match=r"already holds a run \(50\)"):
        train(config(), tmp_path / "run", False, "none")
    assert sorted(tmp_path.rglob("*")) == before
    train(config(), tmp_path / "run", True, "none")
    assert tables(tmp_path / "run") == tables(whole)
