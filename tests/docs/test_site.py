"""The site's links, and the page of tables."""

import re
import runpy
import sys
import types

import pytest

from tests.snippets import ROOT, run_program
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
