"""Contrasts by seed: what they add up, their intervals and tests, what is refused."""

import numpy as np
import pandas as pd
import pytest

from analysis.statistics import contrasts
from analysis.statistics.contrasts import parse
from analysis.statistics.matrices import run_scores
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import rows_where
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.pages import REFERENCE
from tests.runs import refusal

SEEDS = (3, 1, 2)
GOAL_SPACE = synthetic.GOAL_SPACE
SHIFTS = {
    "a": {1: 0.1, 2: 0.2, 3: 0.6},
    "b": {1: 0.0, 2: 0.0, 3: 0.0},
    "c": {1: 0.1, 2: -0.1, 3: 0.2},
    "d": {1: 0.25, 2: 0.25, 3: 0.25},
}
"""Variant -> what its success has more than half of the base's, by seed."""


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Variants of `magellan` that differ by `SHIFTS`, with seeds declared in another order."""
    variants = {name: {"agent": {"gamma": 0.9 + at / 100}} for at, name in enumerate(SHIFTS)}
    folder = tmp_path_factory.mktemp("known")
    results = synthetic.combined(
        folder, ("magellan",), seeds=SEEDS, variants=variants, episodes=4_000
    )
    evaluation = results.tables["evaluation"]
    keys = ["seed", "split", "category", "episode"]
    base = rows_where(evaluation, variant="b").set_index(keys)["success"] * 0.5
    shifts = [
        SHIFTS[variant][seed]
        for variant, seed in zip(evaluation["variant"], evaluation["seed"], strict=True)
    ]
    success = base.reindex(pd.MultiIndex.from_frame(evaluation[keys])).to_numpy() + shifts
    return synthetic.with_tables(results, evaluation=evaluation.assign(success=success))


def rows_of(results, *texts, of="success"):
    return [[*row] for table in contrasts.tables(results, texts, of) for row in table.rows]


def means(results, *texts):
    return [row for row in rows_of(results, *texts) if row[:2] == ["train", "mean"]]


def test_terms_are_read():
    first, second = parse("a/b.c@25k:learned + b1")
    assert first == (1, "a/b.c@25k:learned", "a", "b.c", "25k", "learned")
    assert second == (1, "b1", "b1", "", "", "")
    first, second = parse("a/2.5@2.5k - a/v1.@B.1-2.5:learned")
    assert first[2:] == ("a", "2.5", "2.5k", "")
    assert second[2:] == ("a", "v1.", "B.1-2.5", "learned")
    assert [term.sign for term in parse("a - b + c - d")] == [1, -1, 1, -1]


@pytest.mark.parametrize("text", ["", "a-b", "a -", "- a b", "a - b,"])
def test_other_texts_are_no_contrasts(text):
    assert "is no sum; allowed: SAMPLER/VARIANT@SPACE:ESTIMATOR" in refusal(parse, text)


def test_differences_are_paired_by_seed_and_first_minus_second(known):
    """Differences 0.1, 0.2 and 0.6 in each category: all of one sign, 2 of 8 sign flips as far."""
    rows = rows_of(known, "magellan/a - magellan/b")
    assert rows[0][:2] == ["train", "grasp"]
    assert rows[0][4:] == ["+0.300", "none: too few runs", "3", "", ""]  # no p is below .05
    assert rows[4][4:] == ["+0.300", "none: too few runs", "3", "", ".250"]
    four = [float(row[2]) for row in rows[:4]]
    assert float(rows[4][2]) == pytest.approx(sum(four) / 4, abs=0.001)
    assert rows_of(known, "magellan/b - magellan/a")[0][4] == "-0.300"
    # A constant shift has no spread, however much the seeds differ.
    shifted = {tuple(row[4:6]) for row in rows_of(known, "magellan/d - magellan/b")}
    assert shifted == {("+0.250", "none: all equal")}


def test_contrasts_given_together_are_corrected_after_holm(known):
    """n = 3: all of one sign, 2 of 8 sign flips as far; .1, -.1, .2: 6 of 8. The least twice."""
    both = "magellan/a - magellan/b", "magellan/c - magellan/b"
    text = synthetic.to_markdown(contrasts, known, both)
    assert text.count("| n | halves of the seeds | p | p, uncorrected |") == 2
    title = "magellan/c - magellan/b (sign flips by seed, Holm over 2; intervals uncorrected)"
    assert text.count(title) == 1
    assert [row[8:] for row in means(known, *both)] == [[".500", ".250"], [".750", ".750"]]
    [alone] = means(known, both[1])
    assert alone == [*means(known, *both)[1][:8], ".750"]


def test_a_single_algorithm_has_a_mean_and_no_test(known):
    row = next(row for row in rows_of(known, "magellan/a") if row[1] == "mean")
    scores = run_scores(known, Algorithm("magellan", "a"), GOAL_SPACE, "train")
    assert row[2] == f"{scores.to_numpy().mean():.3f}"
    assert row[5:] == ["", ""]


def test_a_gain_is_tested_against_none(known):
    """Ends minus starts, a pair for each run; no gain is larger than 1."""
    evaluation = known.tables["evaluation"].assign(success=0.5)
    for end, values in (("min", {3: 0.1, 1: 0.2, 2: 0.0}), ("max", {3: 0.9, 1: 0.4, 2: 0.5})):
        rows = evaluation["episode"] == evaluation["episode"].agg(end)
        evaluation.loc[rows, "success"] = evaluation["seed"].map(values)
    results = synthetic.with_tables(known, evaluation=evaluation)
    rows = rows_of(results, "magellan", of="gain")
    assert rows[0] == ["train", "grasp", "+0.500", "none: too few runs", "3", "", ""]  # .8, .2, .5
    assert rows[4] == ["train", "mean", "+0.500", "none: too few runs", "3", "", ".250"]


CURVES = {
    1: [0.1, 0.6, 0.9, 0.9, 0.1, 0.1, 0.1, 0.9, 0.1],  # collapses twice
    2: [0.1, 0.6, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1],  # once, one evaluation too late
    3: [0.1, 0.6, 0.9, 0.9, 0.3, 0.1, 0.1, 0.6, 0.3],  # falls, in two steps
}
PROGRESS = [0.9, 0.8, 0.2, 0.1, 0.1, 0.3, 0.5, 0.7, 0.6]


def collapsing(folder, samplers, falls):
    """Grasping goes as in `CURVES` where `falls` says; all else is at .9."""
    results = synthetic.combined(folder, samplers, seeds=SEEDS, episodes=8_000)
    evaluation = results.tables["evaluation"]
    at = evaluation["episode"] // 1_000
    seen = [CURVES[seed][point] for seed, point in zip(evaluation["seed"], at, strict=True)]
    seen = np.where(falls(evaluation) & (evaluation["category"] == "grasp"), seen, 0.9)
    return synthetic.with_tables(results, evaluation=evaluation.assign(success=seen))


def test_progress_at_the_first_collapse_is_set_against_the_largest_before(tmp_path):
    """Up to two evaluations after: .5. Before, without the first eighth: .2."""
    results = collapsing(tmp_path, ("magellan",), lambda evaluation: evaluation["seed"] > 0)
    evaluation, competence = (results.tables[name] for name in ("evaluation", "competence"))
    progress = (competence["episode"] // 1_000).map(PROGRESS.__getitem__)
    competence = competence.assign(learning_progress=progress)
    results = synthetic.with_tables(results, competence=competence)
    rows = rows_of(results, "magellan:learned", of="collapse")
    assert [row[2:5] for row in rows[:2]] == [["+0.300", "none: too few runs", "1"], ["", "", "0"]]
    assert rows[4][1:5] == ["mean", "+0.300", "none: too few runs", "1"]
    without = synthetic.with_tables(results, evaluation=evaluation.assign(success=0.9))
    (one,) = contrasts.compare(without, ["magellan:learned"], "collapse", ["train"])
    assert np.isnan([one.p, one.p_holm]).all()


def test_intervals_of_tested_sums_invert_the_test_and_others_are_studentised():
    """Six pairs: 2 of 64 sign flips are as far as all signs alike, so the ends are the extremes."""
    values = np.array([1.2, 1.3, 1.25, 1.28, 1.1, 1.35])
    for text, of in (("a - b - c + d", "success"), ("a", "gain")):
        mean, low, high = contrasts.mean_of(values, parse(text), of)
        assert (mean, low, high) == pytest.approx((values.mean(), 1.1, 1.35))
    _, low, high = contrasts.mean_of(values - 0.5, parse("a"), "success")
    assert 0.6 < low < 0.75 < high < 0.85
    assert contrasts.halves(values) == "+1.25, +1.24"
    assert contrasts.halves(values[:3]) == ""


def test_errors_of_predictions_are_compared_too(varied):
    evaluation = varied.tables["evaluation"].assign(success=0.5)
    competence = varied.tables["competence"].assign(competence=0.5)
    idle = competence["category"] == "impossible"
    competence.loc[idle, "competence"] = 0.0
    small = (competence["variant"] == "small") & (competence["estimator"] == "learned")
    competence.loc[small, "competence"] = 0.6
    competence.loc[small & idle, "competence"] = 0.2
    competence.loc[competence["estimator"] != "learned", "competence"] = 0.9
    results = synthetic.with_tables(varied, evaluation=evaluation, competence=competence)
    compared = rows_of(results, "magellan/whole - magellan/small", of="error")
    rows = {row[1]: row[2:5] for row in compared if row[0] == "train"}
    assert rows["impossible"] == ["0.000", "0.200", "-0.200"]
    assert rows["grasp"] == ["0.000", "0.100", "-0.100"]
    assert rows["mean"] == ["0.000", "0.120", "-0.120"]


def test_terms_may_name_goal_spaces(tmp_path):
    spaces = GOAL_SPACE, "500-100-20-20-10"
    results = synthetic.combined(tmp_path, ("magellan",), spaces, SEEDS, episodes=4_000)
    both = " - ".join(f"magellan@{space}" for space in spaces)
    algorithm = Algorithm("magellan", "default")
    areas = [run_scores(results, algorithm, s, "train").to_numpy().mean() for s in spaces]
    (row,) = means(results, both)
    assert row[2:5] == [*(f"{x:.3f}" for x in areas), f"{areas[0] - areas[1]:+.3f}"]
    evaluation = results.tables["evaluation"]
    kept = (evaluation["goal_space"] == GOAL_SPACE) | (evaluation["category"] != "grasp")
    other = synthetic.with_tables(results, evaluation=evaluation[kept])
    assert "different categories" in refusal(contrasts.compare, other, [both])


def test_a_family_has_the_contrasts_of_a_goal_space_whether_or_not_they_name_it(varied):
    named = f"online/whole@{GOAL_SPACE} - magellan/whole@{GOAL_SPACE}"
    compared = contrasts.compare(varied, [named, "magellan/whole - magellan/small"])
    assert [one.goal_space for one in compared] == [GOAL_SPACE] * 4
    assert [one.tests for one in compared] == [2] * 4


def test_means_of_terms_are_of_the_runs_of_their_difference(tmp_path):
    """Seeds 1 and 3 of one sampler collapse, seed 1 of the other."""
    results = collapsing(
        tmp_path,
        ("online", "magellan"),
        lambda rows: (rows["seed"] == 1) | (rows["sampler"] == "magellan"),
    )
    competence = results.tables["competence"]
    noise = competence["learning_progress"] + 0.1 * competence["seed"] * (competence["episode"] % 7)
    results = synthetic.with_tables(results, competence=competence.assign(learning_progress=noise))
    rows = rows_of(results, "magellan - online", of="collapse")
    assert rows[1][2:5] == ["", "", ""]  # no run collapses in this category
    first, second, difference = map(float, rows[0][2:5])
    assert difference == pytest.approx(first - second, abs=0.002)
    assert rows[4][2:5] == rows[0][2:5]


def test_tables_are_whole_where_a_split_has_fewer_tests():
    """On unseen goals only one of these two has a collapse."""
    results = store.load(REFERENCE / "released")
    made = contrasts.tables(results, ["magellan/public", "ek_online/public"], "collapse")
    for table in made:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert "Holm over 2 and 1" in made[1].caption


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["online/small"], "not all terms have runs; allowed: online/whole, magellan/whole, "),
        (["magellan", "magellan"], "'magellan' is given twice"),
        (["magellan/whole", "magellan"], "'magellan' is given twice"),
        (["magellan - online", "online - magellan"], "'online - magellan' is given twice"),
        (["magellan", f"magellan@{GOAL_SPACE}"], f"'magellan@{GOAL_SPACE}' is given twice"),
        (["magellan - magellan"], "'magellan - magellan' has a term twice"),
        (["magellan:best", "--of", "error"], "magellan: error needs one estimator; allowed: "),
        (["magellan:learned"], "allowed with --of error and --of collapse"),
        (["magellan", "--against", "observed"], "allowed with --of error"),
        (["magellan", "--of", "error", "--against", "learned"], "'learned' is compared"),
    ],
)
def test_other_calls_are_refused_in_one_line(varied, refused, words, says):
    assert says in refused("compare", varied, *words)


def test_a_seed_that_one_side_lacks_is_refused(varied_runs, tmp_path):
    partial = store.combine(varied_runs[:-1], synthetic.VARIED, incomplete=tmp_path)
    with pytest.raises(InputError, match=r"'whole'.*seed 1 exists on one side only"):
        contrasts.compare(partial, ["magellan/whole - magellan/small"])
