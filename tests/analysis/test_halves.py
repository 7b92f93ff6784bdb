"""Two halves of the seeds, each an experiment of its own."""

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.statistics.primary import comparison
from analysis.studies import halves
from analysis.tables import store
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown

SEEDS = (3, 1, 4, 5, 9)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return synthetic.combined(tmp_path_factory.mktemp("study"), seeds=SEEDS, episodes=8_000)


def test_a_half_is_the_experiment_of_its_seeds(study, tmp_path):
    alone = synthetic.combined(tmp_path, seeds=SEEDS[2:], episodes=8_000)
    assert halves.halves_of(study) == ([3, 1], [4, 5, 9])
    half = halves.select_seeds(study, (4, 5, 9))
    pd.testing.assert_frame_equal(comparison(half), comparison(alone))


def test_a_claim_needs_both_halves(study, monkeypatch):
    whole = comparison(study)

    def made_up(results):
        frame = whole.copy()
        first_half = list(results.experiment["seeds"]) == [3, 1]
        frame["difference"] = [0.2, 0.2, -0.1] * (len(frame) // 3)
        frame["p_holm"] = [0.01, 0.01, 0.2] * (len(frame) // 3)
        if first_half:
            frame["difference"] = [-0.1, 0.1, -0.1] * (len(frame) // 3)
        return frame

    monkeypatch.setattr(halves, "comparison", made_up)
    found = halves.compare_halves(study).iloc[:3]
    assert found["repeated"].tolist() == [False, True, True]
    assert found["claimed"].tolist() == [False, True, False]


def test_nothing_is_repeated_by_a_half_without_runs(study, monkeypatch):
    """The second half of one baseline's runs is missing."""
    whole = comparison(study)

    def made_up(results):
        frame = whole.copy()
        frame["difference"], frame["p_holm"] = 0.2, 0.01
        second = list(results.experiment["seeds"]) == [4, 5, 9]
        return frame[frame["baseline"] != "random"] if second else frame

    monkeypatch.setattr(halves, "comparison", made_up)
    found = halves.compare_halves(study)
    there = found["baseline"] != "random"
    assert set(found["baseline"]) == {"random", "online", "ek_online"}
    assert (found["repeated"] == there).all()
    assert (found["claimed"] == there).all()
    assert "n/a | n/a | no | no |" in to_markdown(halves, study)


def test_three_seeds_have_no_halves(study):
    with pytest.raises(InputError, match="4 or more"):
        halves.halves_of(halves.select_seeds(study, (3, 1, 4)))


def test_one_sampler_alone_has_no_comparison(tmp_path):
    alone = synthetic.combined(tmp_path, samplers=("magellan",), seeds=SEEDS, episodes=4_000)
    with pytest.raises(InputError, match="nothing to compare; allowed: tables of two samplers"):
        to_markdown(halves, alone)


def test_the_command_prints_both_halves(study, tmp_path, capsys):
    store.write(study, tmp_path)
    assert main(["halves", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "seeds 3, 1 and seeds 4, 5, 9" in out
    assert out.count("| Random |") == 2
