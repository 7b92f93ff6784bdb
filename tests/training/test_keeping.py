"""Checkpoints that are kept for good, by the number of episodes."""

import pytest

from magellan.config import identity, resolve_run
from magellan.errors import InputError
from magellan.launched.run import go_on
from magellan.training.checkpoint import Checkpoints, decode
from magellan.training.run import train

LAYER = {"sampler": "random", "goal_space": "40-8-4-2-2", "budget": {"keep_every": 50}}
TABLES = ("evaluation", "practice", "training")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    train(config(), folder, False, "none")
    return folder


def config(**layer):
    return resolve_run("smoke", [{**LAYER, **layer}])


def tables(folder):
    return [(folder / f"{name}.csv").read_bytes() for name in TABLES]


def test_one_for_each_number_that_was_passed(whole):
    assert sorted(path.name for path in whole.iterdir() if path.name.isdecimal()) == ["100", "50"]
    for number in (50, 100):
        [path] = (whole / str(number) / "checkpoints").iterdir()
        episodes = decode(path)[1]["trainer"]["episodes"]
        assert number <= episodes < number + 50
    assert "kept 50/checkpoints/00000001.safetensors" in (whole / "run.log").read_text()


def test_it_is_no_part_of_what_a_run_is():
    assert identity(config()) == identity(config(budget={"keep_every": 0}))


def test_a_run_goes_on_from_one(whole, tmp_path):
    output = tmp_path / "again"
    assert go_on(config(), output, whole / "50")
    train(config(), output, True, "none")
    assert tables(output) == tables(whole)
    assert sorted(path.name for path in output.iterdir() if path.name.isdecimal()) == ["100"]


def test_going_back_counts_more_than_what_was_newer(whole, tmp_path):
    output = tmp_path / "run"
    output.mkdir()
    newest = Checkpoints(whole, config()).load()
    Checkpoints(output, config()).save(newest.state)
    assert go_on(config(), output, output)
    assert go_on(config(), output, whole / "50")
    assert Checkpoints(output, config()).load().state["trainer"]["episodes"] < 100


def test_what_cannot_be_gone_on_from(whole, tmp_path):
    assert not go_on(config(), tmp_path / "run", None)
    with pytest.raises(InputError, match=r"^rl_script_args.loading_path: .* holds no checkpoint; "):
        go_on(config(), tmp_path / "run", tmp_path)
    with pytest.raises(InputError, match=r"^rl_script_args.loading_path: .*another configuration"):
        go_on(config(seed=1), tmp_path / "run", whole / "50")


@pytest.mark.parametrize("name", ["50", "50/checkpoints"])
def test_a_link_at_its_place_is_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    output = tmp_path / "run"
    (output / name).parent.mkdir(parents=True)
    (output / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"^--output: .* is a symbolic link; allowed"):
        train(config(), output, False, "none")
