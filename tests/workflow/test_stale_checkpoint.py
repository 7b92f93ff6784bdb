import fcntl
import importlib.util

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.workflow.conftest import ROOT


@pytest.fixture(scope="module")
def script():
    path = ROOT / "workflow/scripts/set_aside_stale_checkpoint.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def saved(script, tmp_path):
    """A run folder with two checkpoints of configuration abc."""
    (tmp_path / script.NAME).mkdir()
    for serial in (3, 4):
        path = tmp_path / script.NAME / f"{serial:08d}.safetensors"
        save_file({"weight": np.zeros(3)}, path, metadata={"config_hash": "abc", "state": "{}"})
    return tmp_path


def test_only_checkpoints_of_another_configuration_are_set_aside(script, saved):
    assert not script.set_aside(saved, "abc")
    assert (saved / script.NAME).exists()
    assert script.set_aside(saved, "abd")
    assert not (saved / script.NAME).exists()
    assert len(list((saved / "checkpoints.abc").iterdir())) == 2


def test_an_earlier_set_is_not_overwritten(script, saved):
    (saved / "checkpoints.abc").mkdir()
    assert script.set_aside(saved, "abd")
    assert list((saved / "checkpoints.abc").iterdir()) == []
    assert len(list((saved / "checkpoints.abc.2").iterdir())) == 2


def test_nothing_is_moved_under_a_running_trainer(script, saved):
    with (saved / script.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not script.set_aside(saved, "abd")
    assert (saved / script.NAME).exists()


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}"])
def test_damaged_or_missing_ones_are_left_for_the_trainer_to_name(script, tmp_path, content):
    assert not script.set_aside(tmp_path, "abc")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / script.NAME).mkdir()
    path = tmp_path / script.NAME / "00000001.safetensors"
    path.write_bytes(content)
    assert not script.set_aside(tmp_path, "abc")
    assert path.read_bytes() == content


def test_names_are_those_of_the_trainer(script):
    from magellan.training import checkpoint, lock

    assert checkpoint.FOLDER == script.NAME
    assert checkpoint.SUFFIX == ".safetensors"
    assert lock.NAME == script.LOCK
