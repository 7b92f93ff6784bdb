"""Comparisons by seed: paired differences, intervals, what is refused."""

import copy

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
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
    return synthetic.combined(
        tmp_path_factory.mktemp("pool"), samplers=("magellan",), seeds=SEEDS, episodes=4_000
    )


def shifted(results: Results, by: dict[int, float], name: str = "other") -> Results:
    """The same runs with another success, by seed, and seeds declared in another order."""
    frames = {table: frame.copy() for table, frame in results.tables.items()}
    evaluation = frames["evaluation"]
    evaluation["success"] = evaluation["success"] * 0.5 + evaluation["seed"].map(by)
    manifest = copy.deepcopy(dict(results.manifest))
    manifest["experiment"] |= {"experiment": name, "seeds": sorted(SEEDS)}
    return Results(frames, manifest)


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
        assert row[4:] == ["+0.000", "none: all differences equal", "3", p]


def test_differences_are_paired_by_seed_and_first_minus_second(first):
    """Second: half the success, and 0.1, 0.2 and 0.6 on top for seeds 1, 2 and 3."""
    half = shifted(first, {1: 0.0, 2: 0.0, 3: 0.0})
    second = shifted(first, {1: 0.1, 2: 0.2, 3: 0.6})
    row = cells(table_of(second, half))[0]
    assert row[:2] == ["train", "grasp"]
    assert row[4] == "+0.300"
    assert row[5] == "-0.357 to +0.957"  # three seeds: Student t, .3 -+ 4.303 * .265 / sqrt(3)
    assert cells(table_of(half, second))[0][4] == "-0.300"


def test_the_mean_of_the_categories_is_one_number_of_a_run(first):
    """Differences 0.1, 0.2 and 0.6 in each category: all of one sign, 2 of 8 sign flips as far."""
    half = shifted(first, {1: 0.0, 2: 0.0, 3: 0.0})
    rows = cells(table_of(shifted(first, {1: 0.1, 2: 0.2, 3: 0.6}), half))
    mean = next(row for row in rows if row[1] == "mean")
    assert mean[4:] == ["+0.300", "-0.357 to +0.957", "3", "0.250"]
    four = [float(row[2]) for row in rows if row[0] == "train" and row[1] != "mean"]
    assert float(mean[2]) == pytest.approx(sum(four) / 4, abs=0.001)


def test_errors_of_predictions_are_compared_too(varied, tmp_path, capsys):
    """The error of the estimator that chose the goals, of all five categories."""
    results, _ = varied
    frames = {table: frame.copy() for table, frame in results.tables.items()}
    competence = frames["competence"]
    evaluation = frames["evaluation"]
    evaluation["success"] = 0.5
    competence["competence"] = 0.5
    idle = competence["category"] == "impossible"
    competence.loc[idle, "competence"] = 0.0
    small = (competence["variant"] == "small") & (competence["estimator"] == "learned")
    competence.loc[small, "competence"] = 0.6
    competence.loc[small & idle, "competence"] = 0.2
    competence.loc[competence["estimator"] != "learned", "competence"] = 0.9
    store.write(Results(frames, results.manifest), tmp_path)
    assert main(["compare", str(tmp_path), "--variants", "whole", "small", "--of", "error"]) == 0
    printed = capsys.readouterr().out
    assert "**Error of the predicted competence" in printed
    rows = {row[1]: row[2:5] for row in cells(printed) if row[0] == "train"}
    assert rows["impossible"] == ["0.000", "0.200", "-0.200"]
    assert rows["grasp"] == ["0.000", "0.100", "-0.100"]
    assert rows["mean"] == ["0.000", "0.120", "-0.120"]


def test_two_estimators_of_the_same_runs_are_compared(varied):
    results, _ = varied
    frames = {table: frame.copy() for table, frame in results.tables.items()}
    frames["evaluation"]["success"] = 0.5
    driven = frames["competence"]
    driven = driven[driven["estimator"] == "learned"]
    watching = driven.assign(estimator="per_goal", competence=0.0)
    frames["competence"] = pd.concat([driven.assign(competence=0.5), watching])
    both = Results(frames, results.manifest)
    pairs = comparison.pairs_of_estimators(both, ["learned", "per_goal"])
    assert [pair.first.algorithm.variant for pair in pairs] == ["whole", "small"]
    rows = cells(to_markdown(comparison, pairs, "error"))
    of_goals = [row for row in rows if row[1] == "grasp"]
    assert [row[2:5] for row in of_goals] == [["0.000", "0.500", "-0.500"]] * len(of_goals)
    impossible = [row for row in rows if row[1] == "impossible"]
    assert {tuple(row[2:5]) for row in impossible} == {("0.500", "0.000", "+0.500")}


def test_errors_need_an_estimator(varied):
    results, _ = varied
    frames = dict(results.tables)
    frames["competence"] = frames["competence"].iloc[:0]
    changed = Results(frames, results.manifest)
    side = comparison.Side("whole", changed, changed.algorithms[-1])
    with pytest.raises(InputError, match="needs one estimator; found: none"):
        comparison.error_of(side, synthetic.GOAL_SPACE, "train")


def test_one_against_several_is_corrected_after_holm(first):
    """n = 3: all of one sign, 2 of 8 sign flips as far; .1, -.1, .2: 6 of 8. The least twice."""
    sides = {
        "a": shifted(first, dict.fromkeys(SEEDS, 0.0)),
        "b": shifted(first, {1: 0.1, 2: 0.2, 3: 0.3}),
        "c": shifted(first, {1: 0.1, 2: -0.1, 3: 0.2}),
    }
    [algorithm] = first.algorithms

    def pair(name):
        both = [comparison.Side(each, sides[each], algorithm) for each in ("a", name)]
        return comparison.Pair("sampler magellan", synthetic.GOAL_SPACE, *both)

    together = to_markdown(comparison, [pair("b"), pair("c")])
    assert together.count("| n | p | p, uncorrected |") == 2
    ends = [row[7:] for row in cells(together) if row[:2] == ["train", "mean"]]
    assert ends == [["0.500", "0.250"], ["0.750", "0.750"]]
    assert together.count("a minus c (sign flips of pairs by seed, Holm over 2)") == 1
    alone = cells(to_markdown(comparison, [pair("c")]))
    assert [[*row[:7], row[8]] for row in cells(together)[len(alone) :]] == alone


def test_one_family_may_have_both_splits(first):
    """Three pairs of one sign on both splits: 2 of 8 sign flips as far, and twice that."""
    half = shifted(first, dict.fromkeys(SEEDS, 0.0))
    half.manifest["experiment"]["analysis"]["family"] = "question"
    rows = cells(table_of(half, shifted(first, {1: 0.1, 2: 0.2, 3: 0.6})))
    assert [row[7:] for row in rows if row[1] == "mean"] == [["0.500", "0.250"]] * 2


def test_pairing_takes_the_seeds_own_spread_out(first):
    """A constant shift has no spread, however much the seeds differ and in whatever order."""
    half = shifted(first, dict.fromkeys(SEEDS, 0.0))
    more = shifted(first, dict.fromkeys(SEEDS, 0.25))
    assert {tuple(row[4:6]) for row in cells(table_of(more, half))} == {
        ("+0.250", "none: all differences equal")
    }


def test_a_single_seed_has_no_interval():
    assert comparison.mean_difference(np.array([0.2])) == (0.2, None)


# --- two variants of one experiment -------------------------------------------------------------


def test_variants_are_paired_within_one_folder(varied, varied_statistics, tmp_path, capsys):
    results, _ = varied
    pairs = comparison.pairs_of_variants(results, ["whole", "small"])
    assert [(pair.title, pair.goal_space) for pair in pairs] == [
        ("sampler magellan", synthetic.GOAL_SPACE)  # the variants are the same for `online`
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
    store.write(results, tmp_path)
    assert main(["compare", str(tmp_path), "--variants", "whole", "small"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--variants", "whole", "tiny"], "'tiny' is unknown; allowed: whole, small"),
        (["--variants", "whole", "whole"], "is given twice"),
        (["--variants", "whole"], "'whole' is the only one; allowed: two variants or more"),
        ([], "compare: allowed: --variants A B, --samplers A B (or both) or --estimators A B"),
        (["--estimators", "a", "b", "--variants", "whole", "small"], "compare: allowed: "),
        (["--estimators", "learned", "best"], "'best' is unknown; allowed: "),
        (["--estimators", "learned", "learned"], "is given twice"),
    ],
)
def test_other_calls_are_refused_in_one_line(varied, tmp_path, capsys, arguments, words):
    store.write(varied[0], tmp_path)
    assert main(["compare", str(tmp_path), *arguments]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1


def test_a_seed_that_one_variant_lacks_is_refused(varied, tmp_path):
    _, folders = varied
    declared = synthetic.experiment(("online", "magellan"), variants=synthetic.VARIANTS)
    partial = store.combine(folders[:-1], declared, incomplete=tmp_path)
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
        ours, theirs = (
            score_matrices(results, Algorithm(name, "default"), GOAL_SPACE, "train")["area"]
            for name in ("magellan", sampler)
        )
        differences = (ours - theirs).mean(axis=1)
        assert row[4] == f"{differences.mean():+.3f}"
        assert row[8] == "0.250"  # three pairs of one sign: 2 of 8 sign flips as far
        assert row[7] == "0.500"  # twice that, after Holm over two


REPLAYS = {"uniform": {}, "success": {"agent": {"success_fraction": 0.7}}}


@pytest.fixture(scope="module")
def replays(tmp_path_factory):
    """Three samplers with two learners each."""
    samplers = ("random", "online", "magellan")
    return synthetic.combined(
        tmp_path_factory.mktemp("replays"), samplers, seeds=SEEDS, variants=REPLAYS, episodes=4_000
    )


def test_an_interaction_is_the_difference_of_two_leads(replays, tmp_path, capsys):
    store.write(replays, tmp_path)
    options = ["--samplers", "magellan", "random", "online", "--variants", "uniform", "success"]
    assert main(["compare", str(tmp_path), *options]) == 0
    text = capsys.readouterr().out
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
        assert len(row) == 9  # with p corrected over the two others


def test_interactions_that_are_not_there_are_refused(varied, replays, tmp_path, capsys):
    with pytest.raises(InputError, match="'online' has no runs of 'small'"):
        comparison.pairs_of_interactions(varied[0], ["magellan", "online"], ["whole", "small"])
    store.write(replays, tmp_path)
    options = ["--samplers", "magellan", "random", "--variants", "uniform", "success"]
    assert main(["compare", str(tmp_path), *options, "--of", "error"]) == 2
    assert "--of: error is not for --samplers with --variants" in capsys.readouterr().err
