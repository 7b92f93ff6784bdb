"""Folders of models for `transformers` 4."""

import json

import pytest

from magellan.model.transformers4 import readable

LINEAR = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("rotary", "older"),
    [
        (LINEAR, {"rope_theta": 5e5, "rope_scaling": LINEAR}),
        ({"rope_type": "default"}, {"rope_theta": 10_000.0}),  # the usual ones are not scaled
    ],
)
def test_with_the_older_one_names_are_those_that_it_knows(rotary, older, tmp_path):
    values = {"rope_parameters": rotary, "dtype": "float32", "vocab_size": 7}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with readable(tmp_path, new=False) as folder:
        config = json.loads((folder / "config.json").read_text())
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert config == values | older | {"torch_dtype": "float32"}
    assert tokenizer == {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert not folder.exists()
