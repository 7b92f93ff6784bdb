"""Runs that end by environment steps or policy updates: tables and figures go by that unit."""

import functools
import json

import numpy as np
import pandas as pd
import pytest

from analysis import figures
from analysis.report import summary, summary_page
from analysis.statistics import contrasts, matrices, primary, summaries
from analysis.tables import store
from analysis.tables.diagnosis import _check_lengths
from analysis.tables.results import Results
from magellan.config import load_experiment
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown
from tests.runs import refusal

SPACE = synthetic.GOAL_SPACE
COLUMNS = {"steps": "step", "updates": "update"}


def declared(unit: str, **changes) -> dict:
    budget = {unit: 8_000, "evaluate_every": 1_000, "practice_window": 500}
    samplers = ("random", "online", "magellan")
    return synthetic.experiment(samplers, overrides={"budget": budget}, **changes)


@pytest.fixture(scope="module")
def counted_in(tmp_path_factory):
    @functools.cache
    def analyse(unit):
        folders = synthetic.write_runs(
            tmp_path_factory.mktemp(unit), declared(unit), episodes=8_000
        )
        results = store.combine(folders, declared(unit))
        return results, summaries.compute(results)

    return analyse


@pytest.mark.parametrize("unit", COLUMNS)
def test_statistics_are_at_points_of_the_unit(unit, counted_in):
    results, statistics = counted_in(unit)
    assert (results.unit, results.unit_column) == (unit, COLUMNS[unit])
    for name in ("success", "sample_efficiency"):
        assert sorted(statistics[name][COLUMNS[unit]].unique()) == list(range(0, 8_001, 1_000))
        assert "episode" not in statistics[name].columns
    assert set(statistics["mastery"]["limit"]) == {8_000}
    # A second reading, at equal steps, is for budgets in episodes.
    assert list(statistics["comparison_steps"].columns) == list(primary.COMPARISON_COLUMNS)
    assert statistics["comparison_steps"].empty
    assert len(statistics["comparison"])


@pytest.mark.slow
def test_figures_and_tables_name_the_unit(counted_in):
    results, statistics = counted_in("steps")
    figure = figures.draw("success_by_category", results, statistics, SPACE)
    assert {ax.get_xlabel() for ax in figure.axes} - {""} == {"environment steps"}
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 8_000)}
    assert "mean environment steps until then" in to_markdown(summary, results, statistics)
    caption = summary_page._values(results, SPACE)
    assert caption["across"] == caption["unit"] == "environment steps"


def changed_run(results: Results, change) -> Results:
    runs = json.loads(json.dumps(results.manifest["runs"]))
    change(runs[2])
    return synthetic.with_manifest(results, runs=runs)


def test_mixed_units_are_refused(counted_in):
    results, _ = counted_in("steps")
    other = changed_run(results, lambda r: r["config"]["budget"].update(steps=0, updates=8_000))
    with pytest.raises(InputError, match=r"by updates for .*'online'.*by steps for .*'random'"):
        _check_lengths(other)
    variants = {"long": {}, "other": {"budget": {"steps": 0, "updates": 50}}}
    with pytest.raises(
        InputError, match=r"variants.other.budget: unit is updates, and steps for variants.long"
    ):
        load_experiment(declared("steps", variants=variants))


def test_practice_must_have_all_episodes(counted_in):
    results, _ = counted_in("updates")
    more = changed_run(results, lambda run: run.update(episodes=run["episodes"] + 1))
    with pytest.raises(InputError, match=r"practice.csv: 80000 episodes for .*allowed: 80001"):
        store.diagnose(more)


def test_a_mean_up_to_a_number_of_steps_by_hand():
    curve, steps = np.array([0.0, 0.4, 1.0]), np.array([0.0, 100.0, 200.0])
    assert matrices.mean_until(curve, steps, 200.0) == pytest.approx((20 + 70) / 200)
    assert matrices.mean_until(curve, steps, 100.0) == pytest.approx(0.2)
    # At 150 the curve is at 0.7: (20 + (0.4 + 0.7) / 2 * 50) / 150.
    assert matrices.mean_until(curve, steps, 150.0) == pytest.approx(47.5 / 150)
    assert matrices.mean_until(curve, steps, 0.0) == 0.0
    # Two evaluations at the same step have no width.
    twice = np.array([0.0, 100.0, 100.0, 200.0])
    assert matrices.mean_until(np.array([0.0, 0.4, 0.6, 1.0]), twice, 200.0) == pytest.approx(0.5)
    assert "counts fall" in refusal(matrices.mean_until, curve, np.array([0.0, 100.0, 50.0]), 40.0)


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory):
    """Two samplers, three seeds, evaluations at 0, 1,000 and 2,000 episodes.

    Success goes 0, 0.5, 1 for both in all categories. `random` takes 4,000 + 400 x seed steps for
    2,000 episodes, `magellan` 2,000 + 200 x seed: it learns the same in half of the steps.
    """
    folder = tmp_path_factory.mktemp("hand")
    results = synthetic.combined(folder, ("random", "magellan"), seeds=(0, 1, 2), episodes=2_000)
    frame = results.tables["evaluation"]
    share = frame["episode"] / 2_000
    slow, fast = (thousands * (1_000 + 100 * frame["seed"]) for thousands in (4, 2))
    total = np.where(frame["sampler"] == "random", slow, fast)
    frame = frame.assign(success=share, step=(share * total).astype(int))
    return synthetic.with_tables(results, evaluation=frame)


def test_the_comparison_at_equal_steps_by_hand(hand_made):
    assert matrices.equal_length(hand_made, SPACE) == 2_000
    frame = primary.comparison_steps(hand_made)
    assert list(frame.columns) == list(primary.COMPARISON_COLUMNS)
    assert set(frame["split"]) == {"train", "unseen"}
    assert set(frame["score"]) == {"area"}
    assert not frame["primary"].any()
    # A straight line from 0 to 1 in T steps has the mean S / 2T over its first S steps.
    magellan = np.mean([2_000 / (2 * (2_000 + 200 * seed)) for seed in range(3)])
    random = np.mean([2_000 / (2 * (4_000 + 400 * seed)) for seed in range(3)])
    np.testing.assert_allclose(frame["difference"], magellan - random)
    assert set(frame["runs"]) == {3}
    # By episodes they are the same.
    by_episodes = primary.comparison(hand_made)
    np.testing.assert_allclose(by_episodes["difference"], 0.0, atol=1e-12)


@pytest.mark.parametrize("unit", ["episodes", "steps"])
def test_a_contrast_at_equal_lengths_by_hand(hand_made, unit):
    """Where steps end the runs, up to the fewest episodes, each category by itself."""
    if unit == "steps":
        # The mirror image: equal steps, episodes as many as the steps were.
        evaluation = hand_made.tables["evaluation"]
        swapped = evaluation.rename(columns={"step": "episode", "episode": "step"})
        budget = hand_made.manifest["runs"][0]["config"]["budget"] | {"episodes": 0, "steps": 2_000}
        hand_made = synthetic.with_tables(hand_made, evaluation=swapped)
        hand_made = synthetic.with_configs(hand_made, budget=budget)
    assert hand_made.unit == unit
    (term,) = contrasts.parse("random")
    found = contrasts.scores(hand_made, term, "equal")
    expected = [2_000 / (2 * (4_000 + 400 * seed)) for seed in range(3)]
    for name in ("grasp", "grow_carnivore"):
        np.testing.assert_allclose(found[name], expected, rtol=1e-3)  # whole steps
    np.testing.assert_allclose(contrasts.scores(hand_made, term, "success"), 0.5)


def test_the_report_has_both_and_the_cost(hand_made):
    lengths = pd.DataFrame(
        [
            ("random", 0, 2_000, 4_000, 100, 60.0),
            ("random", 1, 2_004, 4_400, 120, 120.0),
            ("magellan", 0, 2_000, np.nan, 60, 30.0),
            ("magellan", 1, 2_000, np.nan, 60, np.nan),
        ],
        columns=["sampler", "seed", "episodes", "steps", "updates", "wall_seconds"],
    ).assign(variant="default", goal_space=SPACE, estimation_episodes=0, peak_memory_mb=np.nan)
    cost = summary.SummaryTables(hand_made, {"cost": lengths}, SPACE).cost()
    assert [tuple(row[1:]) for row in cost.rows] == [
        ("2,002 (2,000-2,004)", "4,200 (4,000-4,400)", "110 (100-120)", "1.5 (1.0-2.0)", "n/a"),
        ("2,000", "n/a", "60", "0.5", "n/a"),
    ]
    text = to_markdown(summary, hand_made, summaries.compute(hand_made))
    assert "**Secondary, over the first 2,000 environment steps of each run: MAGELLAN" in text
