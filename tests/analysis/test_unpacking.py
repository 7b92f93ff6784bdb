"""Runs come out of combined tables as they went in."""

from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from tests.analysis import synthetic


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_unpacked_runs_combine_to_the_same_bytes(varied, tmp_path):
    declared = synthetic.experiment(("online", "magellan"), variants=synthetic.VARIANTS)
    store.write(varied[0], tmp_path / "tables")
    written, there = store.unpack(tmp_path / "tables", tmp_path / "results")
    runs = synthetic.plan(declared)
    assert (written, there) == (len(runs), 0)
    folders = [tmp_path / "results" / run.path for run in runs]
    store.write(store.combine(folders, declared), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "tables")


def test_a_run_that_is_there_is_left_alone(runs, results, tmp_path):
    store.write(results, tmp_path / "tables")
    first = synthetic.plan(synthetic.experiment())[0]
    folder = tmp_path / "results" / first.path
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text("{}")
    written, there = store.unpack(tmp_path / "tables", tmp_path / "results")
    assert (written, there) == (len(runs) - 1, 1)
    assert contents(folder) == {MANIFEST: b"{}"}
