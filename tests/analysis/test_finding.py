"""What an experiment has found, in sentences, and the page that shows it."""

import html
import re
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.report import finding, summary
from analysis.report.summary_page import TEMPLATE
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import Table, chance, p_equals
from tests.analysis import synthetic

ALL = ("ek_online", "online", "random", "magellan")
PIXEL = b"\x89PNG pixel"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Five runs each: all runs of ek_online above all of magellan; online like magellan."""
    folder = tmp_path_factory.mktemp("seen")
    results = synthetic.combined(folder, ALL, seeds=(1, 2, 3, 4, 5), episodes=4_000)
    evaluation = results.tables["evaluation"]
    of_64 = evaluation["sampler"].map({"ek_online": 38, "online": 20, "random": 6, "magellan": 19})
    success = (of_64 + evaluation["seed"]) / 64
    return synthetic.with_tables(results, evaluation=evaluation.assign(success=success))


@pytest.fixture(scope="module")
def statistics(seen):
    return summaries.compute(seen, summary.STATISTICS)


def test_the_winner_is_the_subject_and_equal_samplers_are_undecided(seen, statistics):
    """n = 5: every split but 2 of 252 is less extreme, p = .0079, times three .024."""
    summary = finding.finding(seen, statistics)
    assert [re.sub(r" \(.*?\)", "", text) for text in summary.told] == [
        "ek_online beats magellan by .30, p = .024, n = 5",
        "magellan beats random by .20, p = .024, n = 5",
    ]
    rows = statistics["comparison"]
    row = rows[(rows["baseline"] == "ek_online") & rows["primary"]].iloc[0]
    assert f"({-row['high']:.2f} to {-row['low']:.2f})".replace("0.", ".") in summary.told[0]
    assert len(summary.untold) == 1
    start = "magellan and online are not told apart: magellan minus online is -.02 (-.0"
    assert summary.untold[0].startswith(start)
    assert "corrected over 3 comparisons (Holm)" in summary.measured


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ((-0.004, -0.1, 0.1, 0.5, 5, 4), "a minus b is .00 (-.10 to .10), p = .500, n = 5 and 4"),
        ((0.5, np.nan, np.nan, 0.5, 1, 1), "a minus b is .50, p = .500, n = 1"),
        ((0.5, 0.4, 0.6, 0.05, 9, 9), "not told apart"),
        ((1.0, 1.0, 1.0, 0.0001, 9, 9), "a beats b by 1.00 (1.00 to 1.00), p < .001, n = 9"),
        ((-0.25, -0.5, 0.01, 0.01, 9, 9), "b beats a by .25 (-.01 to .50), p = .010, n = 9"),
    ],
)
def test_sentences(row, sentence):
    names = ("difference", "low", "high", "p_holm", "runs", "baseline_runs")
    where = {"goal_space": "25k", "sampler": "a", "variant": "x", "baseline": "b"}
    algorithms = [Algorithm("a", "x"), Algorithm("b", "x")]
    results = SimpleNamespace(goal_spaces=["25k"], algorithms=algorithms)
    values = {**where, "baseline_variant": "x", **dict(zip(names, row, strict=True))}
    assert sentence in finding.verdict(SimpleNamespace(**values), results, 0.05)


# Three digits would not say that .0498 is below .05.
CHANCES = {0.0481: ".048", 0.0003: "< .001", 0.05: ".050", 0.0498: ".0498", np.nan: ""}


@pytest.mark.parametrize(("p", "text"), CHANCES.items())
def test_p_is_printed_in_one_form(p, text):
    assert chance(p) == text
    assert p_equals(p) == (f"p {text}" if text.startswith("<") else f"p = {text}")


def test_limits_are_those_of_so_few_runs(seen, statistics):
    """Of three, 2 of 20 splits: p is .1 at best; one run against three has 1 of 4."""
    text = "The smallest p that the test can give is .100"
    assert finding.smallest_chance(3, [3, 1], 1) == text
    assert finding.smallest_chance(3, [3], 3) == f"{text}, and .300 after the correction"
    first, second = finding.finding(seen, statistics).limits
    assert first.startswith("Each sampler has n = 5 runs.")
    assert first.endswith("is .008, and .024 after the correction.")
    assert second.startswith("Intervals of means of fewer than 8 runs are crude")


def test_an_experiment_without_a_comparison_says_so(tmp_path):
    alone = synthetic.combined(tmp_path, ("random",), seeds=(0,), episodes=1_000)
    statistics = summaries.compute(alone)
    assert statistics["improvement"].empty
    assert "minus each other" not in synthetic.to_markdown(summary, alone, statistics)
    found = finding.finding(alone, statistics)
    assert found.untold == ["random is the only sampler of this experiment: nothing is compared"]
    assert (found.told, found.limits) == ([], [])


def test_the_terminal_gets_five_lines():
    for told, untold, first in (
        (["a beats b"], ["not told apart"], ["a beats b", "not told apart"]),
        (list("vwxyz"), [], ["v; w; x; and 2 more", "measured"]),
    ):
        summary = {"told": told, "untold": untold, "measured": "measured", "limits": []}
        *begin, where, one, two = finding.terminal(summary, "results/mine", ["one", "two"])
        assert (begin, one, two) == (first, "next: one", "next: two")
        places = "tables: results/mine/tables, results/mine/statistics"
        assert where == f"summary: results/mine/summary.html; {places}"


@pytest.fixture(scope="module")
def folder(seen, tmp_path_factory):
    place = tmp_path_factory.mktemp("results")
    store.write(seen, place / "tables")
    summaries.write(summaries.compute(seen), place / "statistics")
    picture = place / "figures" / synthetic.GOAL_SPACE / "mastery.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(PIXEL)
    return place


def test_the_page_needs_nothing_else(folder, seen, statistics, printed):
    page = folder / "summary.html"
    printed("page", folder, page)
    text = page.read_text()
    assert "<script" not in text
    assert text.count("<img") == 1
    assert re.findall(r'(?:src|href)="(.{10})', text) == ["data:image"]
    assert "url(" not in text
    summary = finding.finding(seen, statistics)
    words = ("Time to mastery", "n = 5 seeds each.", "Kaplan-Meier")
    for said in (*summary.told, *summary.untold, *summary.limits, summary.measured, *words):
        assert said in html.unescape(text)


def test_a_summary_needs_only_tables(folder, printed, refused):
    whole = printed("summary", folder)
    assert "MAGELLAN minus each other (permutation of whole runs, Holm)" in whole
    assert printed("summary", folder / "tables").split() == whole.split()
    assert "there is no folder" in refused("summary", folder / "figures")


HOSTILE = (
    "</script ><script>alert(1)</script>",
    "<!-- <script>",
    "</td></table>",
    "\"'><img src=x onerror=alert(1)>",
    "&lt;b&gt; &amp; &#60;",
    "</title><style>*{display:none}</style>",
    "{title} {body} %s",
)


def page_of(text: str) -> str:
    table = Table(text, (text, "b"), ((text, text), ("1", text)))
    figure = {"label": text, "goal_space": text, "data": "", "caption": [text]}
    texts = {name: [text] for name in ("found", "notes", "claims", "limits")}
    pages = {name: [table] for name in ("tables", "numbers", "provenance")}
    return TEMPLATE.render(title=text, **texts, **pages, figures=[figure])


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_string_is_ever_markup(hostile):
    plain, page = page_of("plain"), page_of(hostile)
    for sign in "<>\"'":
        assert page.count(sign) == plain.count(sign)
    assert html.unescape(page) == html.unescape(plain).replace("plain", hostile)
    # Twice the title, four lists, a figure, and of three tables caption, column and three cells.
    assert plain.count("plain") == 2 + 4 + 4 + 3 * 5
