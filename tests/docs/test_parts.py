"""What docs/extend.md shows runs where only the packages are that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snippets import ROOT, write_files
from tests.test_curriculum import OF_MODELS, OF_OTHERS, without


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("world.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        ("loop.py", ("torch", *OF_MODELS, *OF_OTHERS)),
        ("reads.py", ("snakemake", "rliable", "arch")),  # `transformers` looks for the others
    ],
)
def test_a_snippet_runs(tmp_path: Path, name: str, absent: tuple[str, ...]) -> None:
    path = write_files("docs/extend.md", tmp_path)[name]
    printed = without(absent, Path(path).read_text())
    if name == "loop.py":  # goals that are learnt are drawn more often than half of the time
        assert 0.6 < float(printed) < 1.0
    if name == "reads.py":  # goals that were never tried: those like the solved ones, the others
        like, unlike = map(float, printed.split())
        assert like > 0.9
        assert unlike < 0.1


def test_extras_that_the_pages_name_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    text = "".join((ROOT / "docs" / name).read_text() for name in ("extend.md", "trainers.md"))
    for extra in ("model", "all", "trl"):
        assert f"'.[{extra}]'" in text
        assert f"\n{extra} = [" in project
