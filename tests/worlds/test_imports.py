"""Nobody but Little-Zoo itself, and what builds its models, imports Little-Zoo by name."""

import pytest

from tests.snippets import ROOT, imported, run_program

OWN = ("magellan/worlds/little_zoo/", "magellan/pretraining/", "magellan/worlds/__init__.py")
MODULES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("magellan", "analysis", "workflow")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("path", [path for path in MODULES if not path.startswith(OWN)])
def test_no_module_imports_little_zoo_by_name(path):
    assert [name for name in imported(ROOT / path) if "little_zoo" in name] == []


def test_rules_of_the_workflow_do_not_either():
    for path in (ROOT / "workflow").rglob("*.smk"):
        assert "little_zoo" not in path.read_text(encoding="utf-8")


def test_worlds_need_no_torch():
    run_program(
        "import sys, magellan.worlds, analysis.tables.grid; assert 'torch' not in sys.modules"
    )
