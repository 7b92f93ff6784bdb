"""Nobody but Little-Zoo itself, and what builds its models, imports Little-Zoo by name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = ("magellan/worlds/little_zoo/", "magellan/pretraining/", "magellan/worlds/__init__.py")
MODULES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("magellan", "analysis", "workflow")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", [path for path in MODULES if not path.startswith(OWN)])
def test_no_module_imports_little_zoo_by_name(path):
    assert [name for name in imported(path) if "little_zoo" in name] == []


def test_rules_of_the_workflow_do_not_either():
    for path in (ROOT / "workflow").rglob("*.smk"):
        assert "little_zoo" not in path.read_text(encoding="utf-8")


def test_worlds_need_no_torch():
    code = "import sys, magellan.worlds, analysis.tables.labels; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
