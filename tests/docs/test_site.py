"""The site's links, the page of tables, and what docs/extend.md and docs/models.md show."""

import json
import re
import runpy
import sys
import types
from pathlib import Path

import pytest

from magellan.config import grid, load_experiment, read_yaml
from magellan.jobs.run import train
from tests.snippets import ROOT, run_program, write_files
from tests.test_curriculum import OF_MODELS, OF_OTHERS, without
from tests.test_readme import PAGES


@pytest.fixture
def hooks(monkeypatch):
    """The hook without mkdocs, which the tests do not install."""
    for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    files = sys.modules["mkdocs.structure.files"]
    files.File = files.Files = object
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs/hooks.py")))


def test_links_lead_to_pages_of_the_site_and_code_becomes_its_name(hooks):
    text = (
        "[a](../config/README.md#keys) [b](runs.md) ![c](../results/reference/figures/x/y.png) "
        "[d](../magellan/cli.py) [`Makefile`](../Makefile) [e](https://example.org/a.md)\n"
        "```\n[f](../README.md)\n```\n[g](../README.md)"
    )
    assert hooks.turned(text, "docs/speed.md") == (
        "[a](configuration.md#keys) [b](runs.md) ![c](results/reference/figures/x/y.png) "
        "d (`magellan/cli.py`) Makefile [e](https://example.org/a.md)\n"
        "```\n[f](../README.md)\n```\n[g](index.md)"
    ).replace("Makefile [e]", "`Makefile` [e]")


def test_every_page_is_in_the_navigation(hooks):
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r"- .*: (\S+)\n", navigation)
    pages = {hooks._name_of(path.relative_to(ROOT).as_posix()) for path in PAGES}
    assert sorted(listed) == sorted(pages | set(hooks.PAGES.values()))


def test_the_analysis_needs_no_torch():
    """All of it in a process of its own: no model's library is loaded."""
    files = (ROOT / "analysis").glob("*/[a-z]*.py")
    names = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)
    assert len(names) > 30
    names.append("analysis.__main__")
    code = (
        f"import sys\nfor name in {names!r}: __import__(name)\n"
        "print(sorted({'torch', 'transformers', 'peft'} & sys.modules.keys()))"
    )
    assert run_program(code) == "[]"


def test_the_lines_of_pandas_on_the_page_of_tables_run(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/tables.md").read_text()
    lines = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    assert len(lines) == 3
    exec("\n".join(lines), {})
    assert "112000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("world.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        ("loop.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        # `transformers` looks for the others.
        pytest.param("reads.py", ("snakemake", "rliable", "arch"), marks=pytest.mark.slow),
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
