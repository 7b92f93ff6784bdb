"""Runs come out of combined tables as they went in."""

from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from tests.analysis import synthetic


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_unpacked_runs_combine_to_the_same_bytes(varied, tmp_path):
    store.write(varied, tmp_path / "tables")
    written, there = store.unpack(tmp_path / "tables", tmp_path / "results")
    runs = synthetic.plan(synthetic.VARIED)
    assert (written, there) == (len(runs), 0)
    folders = [tmp_path / "results" / run.path for run in runs]
    store.write(store.combine(folders, synthetic.VARIED), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "tables")


def test_a_run_that_is_there_is_left_alone(runs, folder, tmp_path):
    first = synthetic.plan(synthetic.experiment())[0]
    run = tmp_path / "results" / first.path
    run.mkdir(parents=True)
    (run / MANIFEST).write_text("{}")
    written, there = store.unpack(folder, tmp_path / "results")
    assert (written, there) == (len(runs) - 1, 1)
    assert contents(run) == {MANIFEST: b"{}"}
