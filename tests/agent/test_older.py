"""Folders of models for `transformers` 4."""

import json

from magellan.model.files import BACKBONES
from magellan.model.transformers4 import readable


def test_with_the_newer_one_it_is_the_folder_itself():
    with readable(BACKBONES / "zoo-mini", new=True) as folder:
        assert folder == BACKBONES / "zoo-mini"


def test_with_the_older_one_names_are_those_that_it_knows(tmp_path):
    values = {
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0},
        "dtype": "float32",
        "vocab_size": 7,
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with readable(tmp_path, new=False) as folder:
        config = json.loads((folder / "config.json").read_text())
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert (config["rope_theta"], config["torch_dtype"]) == (5e5, "float32")
    assert config["vocab_size"] == 7
    assert config["rope_scaling"] == values["rope_parameters"]
    assert tokenizer == {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert not folder.exists()


def test_usual_rotary_positions_need_no_scaling(tmp_path):
    (tmp_path / "config.json").write_text('{"rope_parameters": {"rope_type": "default"}}')
    with readable(tmp_path, new=False) as folder:
        config = json.loads((folder / "config.json").read_text())
    assert config["rope_theta"] == 10_000
    assert "rope_scaling" not in config
