"""Comparisons by seed: paired differences, intervals, what is refused."""

import numpy as np
import pandas as pd
import pytest

from analysis.statistics import comparison
from analysis.statistics.matrices import score_matrices
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results, rows_where
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown

SEEDS = (3, 1, 2)
GOAL_SPACE = synthetic.GOAL_SPACE


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    return synthetic.combined(folder, ("magellan",), seeds=SEEDS, episodes=4_000)


def shifted(results: Results, by: dict[int, float]) -> Results:
    """The same runs with another success, by seed, and seeds declared in another order."""
    evaluation = results.tables["evaluation"]
    success = evaluation["success"] * 0.5 + evaluation["seed"].map(by)
    changed = synthetic.with_tables(results, evaluation=evaluation.assign(success=success))
    declared = {**results.experiment, "experiment": "other", "seeds": sorted(SEEDS)}
    return synthetic.with_manifest(changed, experiment=declared)


@pytest.fixture(scope="module")
def half(first):
    """Half of the success."""
    return shifted(first, dict.fromkeys(SEEDS, 0.0))


@pytest.fixture(scope="module")
def second(first):
    """Half of the success, and 0.1, 0.2 and 0.6 on top for seeds 1, 2 and 3."""
    return shifted(first, {1: 0.1, 2: 0.2, 3: 0.6})


def table_of(first: Results, second: Results) -> str:
    [algorithm] = first.algorithms
    sides = [comparison.Side("one", first, algorithm), comparison.Side("other", second, algorithm)]
    return to_markdown(comparison, [comparison.Pair("sampler magellan", GOAL_SPACE, *sides)])


def cells(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(("| train", "| unseen"))
    ]


def test_equal_runs_do_not_differ(first):
    rows = cells(table_of(first, first))
    assert [row[1] for row in rows].count("mean") == 2
    assert len(rows) == 2 * (4 + 1)
    for row in rows:
        assert row[2] == row[3]
        p = "1.000" if row[1] == "mean" else ""
        assert row[4:] == ["+0.000", "none: all differences equal", "3", "", p]


def test_an_interval_of_a_difference_of_differences_reaches_two():
    differences = np.array([1.2, 1.3, 1.25, 1.28, 1.1, 1.35])
    value, (low, high) = comparison.mean_difference(differences, 2.0)
    assert 1.0 < low < value < high < 2.0


def test_halves_of_the_seeds_need_two_each():
    assert comparison.halves(np.array([0.1, 0.2, 0.3, 0.4, -0.5])) == "+0.15, +0.07"
    assert comparison.halves(np.array([0.1, 0.2, 0.3])) == ""


def test_differences_are_paired_by_seed_and_first_minus_second(half, second):
    row = cells(table_of(second, half))[0]
    assert row[:2] == ["train", "grasp"]
    assert row[4] == "+0.300"
    assert row[5] == "-0.357 to +0.957"  # three seeds: Student t, .3 -+ 4.303 * .265 / sqrt(3)
    assert cells(table_of(half, second))[0][4] == "-0.300"


def test_the_mean_of_the_categories_is_one_number_of_a_run(half, second):
    """Differences 0.1, 0.2 and 0.6 in each category: all of one sign, 2 of 8 sign flips as far."""
    rows = cells(table_of(second, half))
    mean = next(row for row in rows if row[1] == "mean")
    assert mean[4:] == ["+0.300", "-0.357 to +0.957", "3", "", "0.250"]
    four = [float(row[2]) for row in rows if row[0] == "train" and row[1] != "mean"]
    assert float(mean[2]) == pytest.approx(sum(four) / 4, abs=0.001)


def test_errors_of_predictions_are_compared_too(varied, printed):
    """The error of the estimator that chose the goals, of all five categories."""
    evaluation = varied.tables["evaluation"].assign(success=0.5)
    competence = varied.tables["competence"].assign(competence=0.5)
    idle = competence["category"] == "impossible"
    competence.loc[idle, "competence"] = 0.0
    small = (competence["variant"] == "small") & (competence["estimator"] == "learned")
    competence.loc[small, "competence"] = 0.6
    competence.loc[small & idle, "competence"] = 0.2
    competence.loc[competence["estimator"] != "learned", "competence"] = 0.9
    results = synthetic.with_tables(varied, evaluation=evaluation, competence=competence)
    text = printed("compare", results, "--variants", "whole", "small", "--of", "error")
    assert "**Error of the predicted competence" in text
    rows = {row[1]: row[2:5] for row in cells(text) if row[0] == "train"}
    assert rows["impossible"] == ["0.000", "0.200", "-0.200"]
    assert rows["grasp"] == ["0.000", "0.100", "-0.100"]
    assert rows["mean"] == ["0.000", "0.120", "-0.120"]


def test_two_estimators_of_the_same_runs_are_compared(varied):
    driving = rows_where(varied.tables["competence"], estimator="learned").assign(competence=0.5)
    watching = driving.assign(estimator="per_goal", competence=0.0)
    both = synthetic.with_tables(
        varied,
        evaluation=varied.tables["evaluation"].assign(success=0.5),
        competence=pd.concat([driving, watching]),
    )
    pairs = comparison.pairs_of_estimators(both, ["learned", "per_goal"])
    assert [pair.first.algorithm.variant for pair in pairs] == ["whole", "small"]
    rows = cells(to_markdown(comparison, pairs, "error"))
    of_goals = [row for row in rows if row[1] == "grasp"]
    assert [row[2:5] for row in of_goals] == [["0.000", "0.500", "-0.500"]] * len(of_goals)
    impossible = [row for row in rows if row[1] == "impossible"]
    assert {tuple(row[2:5]) for row in impossible} == {("0.500", "0.000", "+0.500")}


def test_errors_need_an_estimator(varied):
    changed = synthetic.with_tables(varied, competence=varied.tables["competence"].iloc[:0])
    side = comparison.Side("whole", changed, changed.algorithms[-1])
    with pytest.raises(InputError, match="needs one estimator; found: none"):
        comparison.error_of(side, GOAL_SPACE, "train")


def test_one_against_several_is_corrected_after_holm(first, half):
    """n = 3: all of one sign, 2 of 8 sign flips as far; .1, -.1, .2: 6 of 8. The least twice."""
    sides = {
        "a": half,
        "b": shifted(first, {1: 0.1, 2: 0.2, 3: 0.3}),
        "c": shifted(first, {1: 0.1, 2: -0.1, 3: 0.2}),
    }
    [algorithm] = first.algorithms

    def pair(name):
        both = [comparison.Side(side, sides[side], algorithm) for side in ("a", name)]
        return comparison.Pair("sampler magellan", GOAL_SPACE, *both)

    together = to_markdown(comparison, [pair("b"), pair("c")])
    assert together.count("| n | halves of the seeds | p | p, uncorrected |") == 2
    ends = [row[8:] for row in cells(together) if row[:2] == ["train", "mean"]]
    assert ends == [["0.500", "0.250"], ["0.750", "0.750"]]
    assert together.count("a minus c (sign flips of pairs by seed, Holm over 2)") == 1
    alone = cells(to_markdown(comparison, [pair("c")]))
    assert [[*row[:8], row[9]] for row in cells(together)[len(alone) :]] == alone


def test_one_family_may_have_both_splits(half, second):
    """Three pairs of one sign on both splits: 2 of 8 sign flips as far, and twice that."""
    rows = cells(table_of(synthetic.with_analysis(half, family="question"), second))
    assert [row[8:] for row in rows if row[1] == "mean"] == [["0.500", "0.250"]] * 2


def test_pairing_takes_the_seeds_own_spread_out(first, half):
    """A constant shift has no spread, however much the seeds differ and in whatever order."""
    more = shifted(first, dict.fromkeys(SEEDS, 0.25))
    assert {tuple(row[4:6]) for row in cells(table_of(more, half))} == {
        ("+0.250", "none: all differences equal")
    }


def test_a_single_seed_has_no_interval():
    assert comparison.mean_difference(np.array([0.2])) == (0.2, None)


# --- two variants of one experiment -------------------------------------------------------------


def test_variants_are_paired_within_one_folder(varied, varied_statistics, printed):
    pairs = comparison.pairs_of_variants(varied, ["whole", "small"])
    assert [(pair.title, pair.goal_space) for pair in pairs] == [
        ("sampler magellan", GOAL_SPACE)  # the variants are the same for `online`
    ]
    text = to_markdown(comparison, pairs)
    assert "| split | category | whole | small | difference |" in text
    scores = rows_where(varied_statistics["scores"], split="unseen", category="grasp")
    whole, small = (
        rows_where(scores, sampler="magellan", variant=name)["area"].to_numpy()
        for name in ("whole", "small")
    )
    row = next(row for row in cells(text) if row[:2] == ["unseen", "grasp"])
    expected = [f"{whole.mean():.3f}", f"{small.mean():.3f}", f"{(whole - small).mean():+.3f}"]
    assert row[2:5] == expected
    assert row[2] != row[3]
    assert printed("compare", varied, "--variants", "whole", "small") == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--variants", "whole", "whole"], "is given twice"),
        (["--variants", "whole"], "'whole' is the only one; allowed: two variants or more"),
        (["--estimators", "a", "b", "--variants", "whole", "small"], "compare: allowed: "),
        (["--estimators", "learned", "best"], "'best' is unknown; allowed: "),
        (["--estimators", "learned", "learned"], "is given twice"),
    ],
)
def test_other_calls_are_refused_in_one_line(varied, refused, arguments, words):
    assert words in refused("compare", varied, *arguments)


def test_a_seed_that_one_variant_lacks_is_refused(varied_runs, tmp_path):
    partial = store.combine(varied_runs[:-1], synthetic.VARIED, incomplete=tmp_path)
    with pytest.raises(InputError, match=r"'whole'.*seed 1 exists on one side only"):
        comparison.pairs_of_variants(partial, ["whole", "small"])


def test_samplers_are_paired_by_seed_and_corrected_over_the_others(tmp_path):
    results = synthetic.combined(
        tmp_path, ("random", "online", "magellan"), seeds=SEEDS, episodes=4_000
    )
    pairs = comparison.pairs_of_samplers(results, ["magellan", "random", "online"])
    assert [pair.second.name for pair in pairs] == ["random", "online"]
    text = to_markdown(comparison, pairs)
    assert "variant default, goal space" in text
    assert "magellan minus random (sign flips of pairs by seed, Holm over 2)" in text
    rows = [row for row in cells(text) if row[:2] == ["train", "mean"]]
    for row, sampler in zip(rows, ("random", "online"), strict=True):
        magellan, other = (
            score_matrices(results, Algorithm(name, "default"), GOAL_SPACE, "train")["area"]
            for name in ("magellan", sampler)
        )
        assert row[4] == f"{(magellan - other).mean(axis=1).mean():+.3f}"
        assert row[9] == "0.250"  # three pairs of one sign: 2 of 8 sign flips as far
        assert row[8] == "0.500"  # twice that, after Holm over two


REPLAYS = {"uniform": {}, "success": {"agent": {"success_fraction": 0.7}}}


@pytest.fixture(scope="module")
def replays(tmp_path_factory):
    """Three samplers with two learners each."""
    samplers = ("random", "online", "magellan")
    return synthetic.combined(
        tmp_path_factory.mktemp("replays"), samplers, seeds=SEEDS, variants=REPLAYS, episodes=4_000
    )


def test_an_interaction_is_the_difference_of_two_leads(replays, printed):
    options = ["--samplers", "magellan", "random", "online", "--variants", "uniform", "success"]
    text = printed("compare", replays, *options)
    rows = [row for row in cells(text) if row[:2] == ["train", "mean"]]
    for row, other in zip(rows, ("random", "online"), strict=True):
        sides = [f"(magellan minus {other}, {name})" for name in REPLAYS]
        assert " minus ".join(sides) in text
        area = {
            (sampler, variant): score_matrices(
                replays, Algorithm(sampler, variant), GOAL_SPACE, "train"
            )["area"].mean(axis=1)
            for sampler in ("magellan", other)
            for variant in REPLAYS
        }
        leads = [area["magellan", name] - area[other, name] for name in REPLAYS]
        numbers = [f"{leads[0].mean():.3f}", f"{leads[1].mean():.3f}"]
        assert row[2:5] == [*numbers, f"{(leads[0] - leads[1]).mean():+.3f}"]
        assert len(row) == 10  # with p corrected over the two others


def test_interactions_that_are_not_there_are_refused(varied, replays, refused):
    with pytest.raises(InputError, match="'online' has no runs of 'small'"):
        comparison.pairs_of_interactions(varied, ["magellan", "online"], ["whole", "small"])
    options = ["--samplers", "magellan", "random", "--variants", "uniform", "success"]
    line = refused("compare", replays, *options, "--of", "error")
    assert "--of: error is not for --samplers with --variants" in line
