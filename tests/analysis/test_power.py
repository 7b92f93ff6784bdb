"""Seeds needed, against textbook values; chances of the right order, by enumeration."""

import itertools

import numpy as np
import pytest

from analysis.report import summary
from analysis.statistics import power, summaries
from analysis.statistics.power import order_in
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm
from magellan.core.errors import InputError
from tests.analysis import synthetic

A, B = Algorithm("a", "default"), Algorithm("b", "default")
RNG = np.random.default_rng(1)


def test_seeds_for_a_difference_of_one_deviation_as_in_textbooks():
    """Two groups, d = 1, 80 % at two-sided 5 %: 17 each (Cohen 1988, table 2.4.1)."""
    normal = RNG.standard_normal(4_000)
    normal = (normal - normal.mean()) / normal.std(ddof=1) * 0.1
    assert power.seeds_needed({A: normal}, 0.1, 0.8) == 17
    assert power.t_power(17, 1.0, 1.0) == pytest.approx(0.807, abs=0.001)


def test_more_seeds_for_less():
    spread = {A: np.array([0.3, 0.35, 0.6, 0.65, 0.3]), B: np.array([0.2, 0.5, 0.55, 0.2])}
    assert power.seeds_needed(spread, 0.1, 0.8) > power.seeds_needed(spread, 0.3, 0.8)
    assert power.seeds_needed(spread, 0.001, 0.8) is None
    assert power.seeds_needed({A: np.ones(3)}, 0.1, 0.8) == 2


def test_residuals_have_the_unbiased_variance_within_algorithms():
    runs = {A: np.array([0.1, 0.3]), B: np.array([0.5, 0.5, 0.8]), Algorithm("c", "x"): np.ones(1)}
    residuals = power.residuals(runs)
    assert (residuals**2).mean() == pytest.approx(np.average([0.02, 0.03], weights=[2, 3]))
    with pytest.raises(InputError, match="no spread"):
        power.residuals({A: np.ones(1)})


def test_chance_of_the_right_order_by_enumeration():
    """One run each: .4 or .6 against .2 or .6: of four pairs two win, one ties, one loses."""
    better, worse = np.array([0.4, 0.6]), np.array([0.2, 0.6])
    assert power.order_chance(better, worse, (1, 1)) == pytest.approx(2.5 / 4, abs=0.03)
    assert power.order_chance(better, worse, (200, 200)) > 0.99


def test_the_command_prints_a_table(results, printed):
    text = printed("power", results, "--difference", "0.2")
    assert "difference of 0.2 with a chance of 80%" in text
    assert "| all algorithms | 8 |" in text
    assert text.count("| MAGELLAN |") == 1


@pytest.mark.parametrize("arguments", [["--difference", "0"], ["--power", "x"]])
def test_other_numbers_are_refused_in_one_line(tmp_path, refused, arguments):
    assert arguments[0] in refused("power", tmp_path, *arguments)


# --- what a larger study says of the order that a small experiment shows --------------------------


PAIR = Algorithm("magellan", "default"), Algorithm("random", "default")
SPACE = synthetic.GOAL_SPACE


def combined(folder, **changes):
    return synthetic.combined(folder, **changes, episodes=8_000)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Four samplers with four seeds."""
    return combined(tmp_path_factory.mktemp("study"), seeds=(3, 4, 5, 6))


def test_the_chance_of_one_run_each_is_the_share_of_pairs_in_order(study, tmp_path):
    small = combined(tmp_path, samplers=("random", "magellan"), seeds=(0,))
    order = order_in(study, small, PAIR, SPACE, "train")
    magellan, random = (run_means(study, algorithm, SPACE, "train") for algorithm in PAIR)
    assert order.difference == pytest.approx(magellan.mean() - random.mean())
    assert order.runs == (4, 4)
    pairs = [np.sign(a - b) for a, b in itertools.product(magellan, random)]
    exact = 0.5 + 0.5 * np.mean(pairs) * np.sign(order.difference)
    assert order.chance == pytest.approx(exact, abs=0.02)


def test_the_other_way_round_the_difference_turns_and_the_chance_stays(study, tmp_path):
    small = combined(tmp_path, samplers=("random", "magellan"), seeds=(0, 1))
    order = order_in(study, small, PAIR, SPACE, "train")
    turned = order_in(study, small, PAIR[::-1], SPACE, "train")
    assert turned == order._replace(difference=-order.difference, runs=order.runs[::-1])
    assert order.chance > 0.5


def test_a_shorter_experiment_is_compared_with_as_much_of_the_study(study, tmp_path):
    small = synthetic.combined(tmp_path, seeds=(0,), episodes=4_000)
    order = order_in(study, small, PAIR, SPACE, "train")
    evaluation = study.tables["evaluation"]
    early = synthetic.with_tables(study, evaluation=evaluation[evaluation["episode"] <= 4_000])
    magellan, random = (run_means(early, algorithm, SPACE, "train") for algorithm in PAIR)
    assert order.difference == pytest.approx(magellan.mean() - random.mean())
    assert order_in(small, study, PAIR, SPACE, "train") is None  # too short to say


def test_another_constant_is_another_algorithm(study, tmp_path):
    small = combined(tmp_path, seeds=(0,), overrides={"agent": {"batch_size": 17}})
    assert order_in(study, small, PAIR, SPACE, "train") is None


def test_a_variant_is_found_by_what_it_is_and_not_by_its_name(tmp_path):
    layer = {"competence": {"buffer": 100}}
    declared = {"samplers": ("random", "magellan")}
    study = combined(tmp_path / "a", variants={"whole": {}, "small": layer}, **declared)
    other = combined(tmp_path / "b", variants={"short_memory": layer}, **declared)
    pair = Algorithm("magellan", "short_memory"), Algorithm("random", "short_memory")
    order = order_in(study, other, pair, SPACE, "train")
    expected = run_means(study, Algorithm("magellan", "small"), SPACE, "train")
    random = run_means(study, Algorithm("random", "whole"), SPACE, "train")
    assert order.difference == pytest.approx(expected.mean() - random.mean())


def test_the_comparison_shows_how_often_its_size_is_right(study, tmp_path):
    small = combined(tmp_path, samplers=("random", "online", "magellan"), seeds=(0, 1))
    statistics = summaries.compute(small)
    numbers = summary.Numbers(small, statistics, SPACE)
    plain, beside = numbers.comparison(), synthetic.frame_of(numbers.comparison(study))
    assert list(beside.columns) == [*plain.columns, summary.STUDY, summary.SAME_SIGN]
    order = order_in(study, small, PAIR, SPACE, "train")
    first = beside.iloc[0]
    assert first[summary.STUDY] == f"{order.difference:+.3f} (n = 4 and 4)"
    assert first[summary.SAME_SIGN] == f"{order.chance:.0%}"
