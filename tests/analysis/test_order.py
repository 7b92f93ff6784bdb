"""What a larger study says of the order that a small experiment shows."""

import itertools

import numpy as np
import pytest

from analysis.report import summary
from analysis.statistics import summaries
from analysis.statistics.power import order_in
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm
from tests.analysis import synthetic

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


def test_the_comparison_says_how_often_its_size_is_right(study, tmp_path):
    small = combined(tmp_path, samplers=("random", "online", "magellan"), seeds=(0, 1))
    statistics = summaries.compute(small)
    plain = summary.comparison_table(small, statistics, SPACE)
    beside = summary.comparison_table(small, statistics, SPACE, study)
    assert list(beside.columns) == [*plain.columns, summary.STUDY, summary.SAME_SIGN]
    order = order_in(study, small, PAIR, SPACE, "train")
    first = beside.iloc[0]
    assert first[summary.STUDY] == f"{order.difference:+.3f} (n = 4 and 4)"
    assert first[summary.SAME_SIGN] == f"{order.chance:.0%}"
