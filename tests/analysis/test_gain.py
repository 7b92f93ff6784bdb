"""Success at the end minus success at the start."""

import numpy as np
import pytest

from analysis.studies import gain
from analysis.tables.results import rows_where
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown

SEEDS = (3, 1, 2)
ENDS = {3: 0.9, 1: 0.4, 2: 0.5}
STARTS = {3: 0.1, 1: 0.2, 2: 0.0}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Runs that start at `STARTS` and end at `ENDS` in every category; between, at 1."""
    folder = tmp_path_factory.mktemp("gain")
    results = synthetic.combined(folder, ("magellan",), seeds=SEEDS, episodes=4_000)
    evaluation = results.tables["evaluation"].assign(success=1.0)
    for end, values in (("min", STARTS), ("max", ENDS)):
        rows = evaluation["episode"] == evaluation["episode"].agg(end)
        evaluation.loc[rows, "success"] = evaluation["seed"].map(values)
    # On unseen goals only plants are learned, and by seed 3 alone.
    unseen = evaluation["split"] == "unseen"
    plants = (evaluation["category"] == "grow_plant") & (evaluation["seed"] == 3)
    evaluation.loc[unseen & ~plants, "success"] = 0.25
    return synthetic.with_tables(results, evaluation=evaluation)


def test_a_run_is_its_own_pair(known):
    """Gains .8, .2 and .5: mean .5, three runs: Student's t, 4.303 * .3 / sqrt(3) either side."""
    rows = rows_where(gain.compute(known), split="train")
    assert list(rows["category"]) == [
        *("grasp", "grow_plant", "grow_herbivore", "grow_carnivore", "mean")
    ]
    np.testing.assert_allclose(rows["start"], 0.1)
    np.testing.assert_allclose(rows["end"], 0.6)
    np.testing.assert_allclose(rows["gain"], 0.5)
    np.testing.assert_allclose(rows["low"], 0.5 - 4.3027 * 0.3 / np.sqrt(3), atol=1e-4)
    np.testing.assert_allclose(rows["high"], 1.0)  # no gain is larger
    assert set(rows["runs"]) == {3}


def test_the_mean_is_one_number_of_a_run(known):
    """One of four categories, by one run of three."""
    rows = rows_where(gain.compute(known), split="unseen").set_index("category")
    assert rows.loc["grasp", ["gain", "low", "high"]].tolist() == [0.0, 0.0, 0.0]
    assert rows.loc["mean", "gain"] == pytest.approx(rows.loc["grow_plant", "gain"] / 4)


def test_the_table_names_what_it_shows(known):
    text = to_markdown(gain, known)
    assert "minus at the first, goal space" in text
    assert "| MAGELLAN | grasp | 0.100 | 0.600 | +0.500 | -0.245 to +1.000 | 3 |" in text


def test_equal_runs_have_no_interval(known):
    """As in the tables of statistics."""
    (grasp, plant) = to_markdown(gain, known).split("split unseen")[1].splitlines()[4:6]
    assert grasp == "| MAGELLAN | grasp | 0.250 | 0.250 | +0.000 | none: all runs equal | 3 |"
    assert "none" not in plant
