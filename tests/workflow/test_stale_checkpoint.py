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


def test_only_the_checkpoint_of_another_configuration_is_set_aside(script, tmp_path):
    path = tmp_path / script.NAME
    save_file({"weight": np.zeros(3)}, path, metadata={"config_hash": "abc", "state": "{}"})
    assert not script.set_aside(tmp_path, "abc")
    assert path.exists()
    assert script.set_aside(tmp_path, "abd")
    assert not path.exists()
    assert (tmp_path / "checkpoint.abc.safetensors").exists()


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}"])
def test_a_damaged_or_missing_checkpoint_is_left_for_the_trainer_to_name(script, tmp_path, content):
    assert not script.set_aside(tmp_path, "abc")
    (tmp_path / script.NAME).write_bytes(content)
    assert not script.set_aside(tmp_path, "abc")
    assert (tmp_path / script.NAME).read_bytes() == content


def test_the_name_is_that_of_the_trainer(script):
    from magellan.training import checkpoint

    assert checkpoint.NAME == script.NAME
