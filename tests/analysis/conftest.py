import pytest

from analysis.statistics import summaries
from analysis.tables import store
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run folders of four samplers and two seeds."""
    root = tmp_path_factory.mktemp("runs")
    return synthetic.write_runs(root, synthetic.experiment(), episodes=8_000)


@pytest.fixture(scope="session")
def results(runs):
    return store.combine(runs, synthetic.experiment())


@pytest.fixture(scope="session")
def statistics(results):
    return summaries.compute(results)


@pytest.fixture(scope="session")
def varied(tmp_path_factory):
    """Two samplers; two variants, which differ for one of them: (results, run folders)."""
    root = tmp_path_factory.mktemp("varied")
    declared = synthetic.experiment(("online", "magellan"), variants=synthetic.VARIANTS)
    folders = synthetic.write_runs(root, declared, episodes=4_000)
    return store.combine(folders, declared), folders


@pytest.fixture(scope="session")
def varied_statistics(varied):
    return summaries.compute(varied[0])
