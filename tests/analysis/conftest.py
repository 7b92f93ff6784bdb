from functools import partial

import pytest

from analysis.__main__ import main
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.results import Results
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return synthetic.write_runs(root, synthetic.experiment(), episodes=8_000)


@pytest.fixture(scope="session")
def results(runs):
    return store.combine(runs, synthetic.experiment())


@pytest.fixture(scope="session")
def statistics(results):
    return summaries.compute(results)


@pytest.fixture(scope="session")
def varied_runs(tmp_path_factory):
    """Run folders of two samplers; two variants, which differ for one of them."""
    root = tmp_path_factory.mktemp("varied")
    return synthetic.write_runs(root, synthetic.VARIED, episodes=4_000)


@pytest.fixture(scope="session")
def varied(varied_runs):
    return store.combine(varied_runs, synthetic.VARIED)


@pytest.fixture(scope="session")
def varied_statistics(varied):
    return summaries.compute(varied)


@pytest.fixture
def folder(results, tmp_path):
    """A tables folder that a test may spoil."""
    store.write(results, tmp_path / "tables")
    return tmp_path / "tables"


def run_command(tmp_path, capsys, status, *words):
    """Run a command of the analysis; results among its words stand for a folder of tables."""
    arguments = []
    for word in words:
        if isinstance(word, Results):
            store.write(word, tmp_path / "tables")
            word = tmp_path / "tables"
        arguments.append(str(word))
    assert main(arguments) == status
    return capsys.readouterr()


@pytest.fixture
def printed(tmp_path, capsys):
    run = partial(run_command, tmp_path, capsys, 0)
    return lambda *words: run(*words).out


@pytest.fixture
def refused(tmp_path, capsys):
    def run(*words):
        line = run_command(tmp_path, capsys, 2, *words).err
        assert line.startswith("error: ")
        assert line.count("\n") == 1
        return line

    return run
