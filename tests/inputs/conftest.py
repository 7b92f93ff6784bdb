import shutil
from pathlib import Path

import pytest

from analysis.statistics import summaries
from analysis.tables import store
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def places(tmp_path_factory) -> dict[str, Path]:
    """Good inputs by the names that the cases use; tests must not change them."""
    root = tmp_path_factory.mktemp("good")
    declared = synthetic.experiment(("random", "magellan"), bootstrap_repetitions=100)
    runs = synthetic.write_runs(root, declared, episodes=2_000)
    results = store.combine(runs, declared)
    store.write(results, root / "tables")
    summaries.write(summaries.compute(results), root / "statistics")
    shutil.copytree(root / "statistics", root / "broken")
    (root / "broken" / "aggregates.csv").write_bytes(b"")
    (root / "file").touch()
    return {
        "SOURCE": root,
        "TABLES": root / "tables",
        "STATISTICS": root / "statistics",
        "BROKEN": root / "broken",
        "RUN": runs[0],
        "FILE": root / "file",
    }


@pytest.fixture
def spoiled(tmp_path):
    """Copy a folder into the test's own, change it and return the copy."""

    def spoil(folder: Path, change) -> Path:
        copy = tmp_path / "spoiled"
        shutil.copytree(folder, copy)
        change(copy)
        return copy

    return spoil
