"""What docs/extend.md and docs/models.md show runs."""

import json
from pathlib import Path

import pytest

from magellan.config import grid, load_experiment, read_yaml
from magellan.jobs.run import train
from tests.snippets import ROOT, run_program, write_files
from tests.test_curriculum import OF_MODELS, OF_OTHERS, without


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("world.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        ("loop.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        ("reads.py", ("snakemake", "rliable", "arch")),  # `transformers` looks for the others
    ],
)
def test_a_snippet_runs_where_only_the_packages_are_that_it_names(tmp_path, name, absent):
    path = write_files("docs/extend.md", tmp_path)[name]
    printed = without(absent, Path(path).read_text())
    if name == "loop.py":  # goals that are learnt are drawn more often than half of the time
        assert 0.6 < float(printed) < 1.0
    if name == "reads.py":  # goals that were never tried: those like the solved ones, the others
        like, unlike = map(float, printed.split())
        assert like > 0.9
        assert unlike < 0.1


def test_extras_that_the_pages_name_exist():
    project = (ROOT / "pyproject.toml").read_text()
    text = "".join((ROOT / "docs" / name).read_text() for name in ("extend.md", "trainers.md"))
    for extra in ("model", "all", "trl"):
        assert f"'.[{extra}]'" in text
        assert f"\n{extra} = [" in project


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
