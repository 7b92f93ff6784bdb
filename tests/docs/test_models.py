"""A language model of one's own: the files of docs/models.md."""

import json
from pathlib import Path

import pytest

from magellan.config import grid, load_experiment, read_yaml
from magellan.jobs.run import train
from tests.snippets import run_program, write_files


@pytest.mark.slow
def test_a_folder_is_made_and_trained(tmp_path, monkeypatch):
    files = write_files("docs/models.md", tmp_path)
    run_program(Path(files["make_model.py"]).read_text(), cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    (run,) = grid(load_experiment(read_yaml(files["my_model.yaml"])))
    manifest = train(run.config, tmp_path / run.path, False, "none")
    assert manifest["status"] == "complete"
    assert (manifest["backbone"]["model"], manifest["passes"]) == ("my-model", "transformers")
    weights = json.loads((tmp_path / "my-model/config.json").read_text())
    assert weights["model_type"] == "gpt2"
    assert manifest["counted"]["backbone.model"] == "my-model"
