"""What an experiment has found, in sentences, and the page that shows it."""

import copy
import re
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.report import finding, summary_page
from analysis.statistics import summaries
from analysis.statistics.intervals import permutation_test
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results
from tests.analysis import synthetic
from tests.analysis.test_pages import Reader

ALL = ("ek_online", "online", "random", "magellan")
PIXEL = b"\x89PNG pixel"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Five runs each: all runs of ek_online above all of magellan; online like magellan."""
    results = synthetic.combined(
        tmp_path_factory.mktemp("seen"), ALL, seeds=(1, 2, 3, 4, 5), episodes=4_000
    )
    frames = dict(results.tables)
    evaluation = frames["evaluation"].copy()
    of_64 = evaluation["sampler"].map({"ek_online": 38, "online": 20, "random": 6, "magellan": 19})
    evaluation["success"] = (of_64 + evaluation["seed"]) / 64
    frames["evaluation"] = evaluation
    return Results(frames, results.manifest)


@pytest.fixture(scope="module")
def statistics(seen):
    return summaries.compute(seen, summary_page.STATISTICS)


def with_analysis(results: Results, **changes) -> Results:
    manifest = copy.deepcopy(dict(results.manifest))
    manifest["experiment"]["analysis"] |= changes
    return Results(results.tables, manifest)


def test_the_winner_is_the_subject_and_equal_ones_are_not_told_apart(seen, statistics):
    """n = 5: every split but 2 of 252 is less extreme, p = .0079, times three .024."""
    found = finding.finding(seen, statistics)
    assert [re.sub(r" \(.*?\)", "", text) for text in found.told] == [
        "ek_online beats magellan by .30, p = .024, n = 5",
        "magellan beats random by .20, p = .024, n = 5",
    ]
    rows = statistics["comparison"]
    row = rows[(rows["baseline"] == "ek_online") & rows["primary"]].iloc[0]
    assert f"({-row['high']:.2f} to {-row['low']:.2f})".replace("0.", ".") in found.told[0]
    assert len(found.untold) == 1
    start = "magellan and online are not told apart: magellan minus online is -.02 (-.0"
    assert found.untold[0].startswith(start)
    assert "corrected over 3 comparisons (Holm)" in found.measured


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((0.0, -0.1, 0.1, 1.0, 5, 5), "a minus b is .00 (-.10 to .10), p = 1.000, n = 5"),
        ((-0.004, -0.1, 0.1, 0.5, 5, 4), "a minus b is .00 (-.10 to .10), p = .500, n = 5 and 4"),
        ((0.5, np.nan, np.nan, 0.5, 1, 1), "a minus b is .50, p = .500, n = 1"),
        ((0.5, 0.4, 0.6, 0.05, 9, 9), "not told apart"),
        ((1.0, 1.0, 1.0, 0.0001, 9, 9), "a beats b by 1.00 (1.00 to 1.00), p < .001, n = 9"),
        ((-0.25, -0.5, 0.01, 0.01, 9, 9), "b beats a by .25 (-.01 to .50), p = .010, n = 9"),
    ],
)
def test_sentences(row, said):
    names = ("difference", "low", "high", "p_holm", "runs", "baseline_runs")
    where = {"goal_space": "25k", "sampler": "a", "variant": "x", "baseline": "b"}
    algorithms = [Algorithm("a", "x"), Algorithm("b", "x")]
    results = SimpleNamespace(goal_spaces=["25k"], algorithms=algorithms)
    values = {**where, "baseline_variant": "x", **dict(zip(names, row, strict=True))}
    assert said in finding.verdict(SimpleNamespace(**values), results, 0.05)


def test_variants_and_goal_spaces_are_named_where_there_are_several(varied, varied_statistics):
    results, _ = varied
    found = finding.finding(results, varied_statistics)
    assert any("magellan/whole and magellan/small" in text for text in found.untold)
    assert any("magellan/whole and online" in text for text in found.untold)


def test_labels_of_variants_are_explained(varied):
    results, _ = varied
    labelled = with_analysis(results, labels={"base": "window 384"})
    assert "figures base is “window 384”." in summary_page.names(labelled)
    assert "window" not in summary_page.names(results)


def test_the_smallest_difference_is_where_the_test_begins_to_tell_apart():
    ours, theirs = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.12, 0.2, 0.31, 0.44])
    found = finding.smallest_difference(ours, theirs, 0.05)
    assert found is not None
    base = ours - ours.mean(), theirs - theirs.mean()
    for step, told in ((found, True), (found - 0.01, False)):
        assert (permutation_test(base[0] + step, base[1]).p < 0.05) == told


def test_three_runs_each_are_never_told_apart():
    """2 of 20 splits: p is .1 at best."""
    runs = {Algorithm(name, ""): np.array([0.1, 0.2, 0.3]) for name in "ab"}
    assert finding.smallest_chance(runs, 1) == "The smallest p that the test can give is .100"
    assert finding.smallest_chance(runs, 3).endswith("is .100, and .300 after the correction")
    ours, theirs = runs.values()
    assert finding.smallest_difference(ours, theirs, 0.05) is None
    assert "at no size, however large" in finding.detectable(ours, [theirs], 0.05, 1)


def test_limits_hold_for_the_runs_that_are_there(seen, statistics):
    first, second, third = finding.finding(seen, statistics).limits
    assert first.startswith("Each sampler has n = 5 runs.")
    assert first.endswith("is .008, and .024 after the correction.")
    assert "reaches p < .05 from .04 on; after the correction from " in second
    assert third.startswith("Intervals of fewer than 8 runs are crude")


def test_where_nothing_is_compared_it_is_said(tmp_path):
    alone = synthetic.combined(tmp_path, ("random",), seeds=(0,), episodes=1_000)
    found = finding.finding(alone, summaries.compute(alone, ("comparison",)))
    assert found.untold == ["random is the only sampler of this experiment: nothing is compared"]
    assert (found.told, found.limits) == ([], [])


@pytest.mark.parametrize(
    ("told", "untold", "first"),
    [
        (
            ["a beats b"],
            ["a and c are not told apart"],
            ["a beats b", "a and c are not told apart"],
        ),
        ([], ["x"], ["x", "measured"]),
        (list("vwxyz"), [], ["v; w; x; and 2 more", "measured"]),
    ],
)
def test_the_terminal_gets_five_lines(told, untold, first):
    found = {"told": told, "untold": untold, "measured": "measured", "limits": []}
    lines = finding.terminal(found, "results/mine", ["one", "two"])
    assert lines == [
        *first,
        "summary: results/mine/summary.html; tables: results/mine/tables, results/mine/statistics",
        "next: one",
        "next: two",
    ]


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(seen, statistics, tmp_path_factory):
    """A results folder, with a picture."""
    place = tmp_path_factory.mktemp("results")
    store.write(seen, place / "tables")
    summaries.write(summaries.compute(seen), place / "statistics")
    picture = place / "figures" / synthetic.GOAL_SPACE / "mastery.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(PIXEL)
    return place


def test_the_page_needs_nothing_else(folder, seen, statistics):
    page = folder / "summary.html"
    assert main(["page", str(folder), str(page)]) == 0
    text = page.read_text()
    reader = Reader(text)
    assert "script" not in reader.tags
    assert reader.tags.count("img") == 1
    assert re.findall(r'(?:src|href)="(.{10})', text) == ["data:image"]
    assert "url(" not in text
    found = finding.finding(seen, statistics)
    for said in (*found.told, *found.untold, *found.limits, found.measured):
        assert said in reader.text
    assert "Time to mastery" in reader.text
    assert "n = 5 seeds each." in reader.text
    assert "Kaplan-Meier" in reader.text
    assert reader.text.index("Kaplan-Meier") < reader.text.index("What so few runs cannot show")
    assert reader.text.index(found.limits[0]) < reader.text.index("0.1.0+0123456789ab")


def test_tables_alone_are_a_folder_too(folder, capsys):
    """Its statistics are computed then; and so are the numbers."""
    assert main(["summary", str(folder)]) == 0
    whole = capsys.readouterr().out
    assert "MAGELLAN minus each other (permutation of whole runs, Holm)" in whole
    assert main(["summary", str(folder / "tables")]) == 0
    alone = capsys.readouterr().out
    assert alone.split() == whole.split()
    assert main(["summary", str(folder / "figures")]) == 2
    assert "there is no folder" in capsys.readouterr().err
