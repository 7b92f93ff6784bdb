"""Nobody but Little-Zoo itself, and what builds its models, imports Little-Zoo by name."""

from tests.snippets import ROOT, imported, run_program

OWN = ("magellan/worlds/little_zoo/", "magellan/pretraining/", "magellan/worlds/__init__.py")


def test_no_module_and_no_rule_names_little_zoo():
    for folder in ("magellan", "analysis", "workflow"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(OWN):
                assert not [used for used in imported(path) if "little_zoo" in used], name
    for path in (ROOT / "workflow").rglob("*.smk"):
        assert "little_zoo" not in path.read_text(encoding="utf-8"), path


def test_worlds_need_no_torch():
    run_program(
        "import sys, magellan.worlds, analysis.tables.grid; assert 'torch' not in sys.modules"
    )
