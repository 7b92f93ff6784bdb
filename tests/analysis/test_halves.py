"""Two halves of the seeds, each an experiment of its own."""

import pandas as pd
import pytest

from analysis.statistics.primary import comparison
from analysis.studies import halves
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
        first_half = list(results.experiment["seeds"]) == [3, 1]
        differences = [-0.1, 0.1, -0.1] if first_half else [0.2, 0.2, -0.1]
        families = len(whole) // 3
        return whole.assign(difference=differences * families, p_holm=[0.01, 0.01, 0.2] * families)

    monkeypatch.setattr(halves, "comparison", made_up)
    frame = halves.compare_halves(study).iloc[:3]
    assert frame["repeated"].tolist() == [False, True, True]
    assert frame["claimed"].tolist() == [False, True, False]


def test_nothing_is_repeated_by_a_half_without_runs(study, monkeypatch):
    """The second half of one baseline's runs is missing."""
    whole = comparison(study)

    def made_up(results):
        frame = whole.assign(difference=0.2, p_holm=0.01)
        second = list(results.experiment["seeds"]) == [4, 5, 9]
        return frame[frame["baseline"] != "random"] if second else frame

    monkeypatch.setattr(halves, "comparison", made_up)
    frame = halves.compare_halves(study)
    has_runs = frame["baseline"] != "random"
    assert set(frame["baseline"]) == {"random", "online", "ek_online"}
    assert (frame["repeated"] == has_runs).all()
    assert (frame["claimed"] == has_runs).all()
    assert "n/a | n/a | no | no |" in to_markdown(halves, study)


def test_three_seeds_have_no_halves(study):
    with pytest.raises(InputError, match="4 or more"):
        halves.halves_of(halves.select_seeds(study, (3, 1, 4)))


def test_one_sampler_alone_has_no_comparison(tmp_path):
    alone = synthetic.combined(tmp_path, samplers=("magellan",), seeds=SEEDS, episodes=4_000)
    with pytest.raises(InputError, match="nothing to compare; allowed: tables of two samplers"):
        to_markdown(halves, alone)


def test_the_command_prints_both_halves(study, printed):
    text = printed("halves", study)
    assert "seeds 3, 1 and seeds 4, 5, 9" in text
    assert text.count("| Random |") == 2
