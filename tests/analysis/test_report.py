"""The report: what an experiment has found, in sentences and on a page; verdicts on claims."""

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.report import claims, finding, summary
from analysis.report.summary_page import TEMPLATE
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import Table, chance, p_equals
from magellan.core.errors import InputError
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


SEEDS = tuple(range(12))
MAGELLAN = [0.5, 0.5, 0.52, 0.48, 0.5, 0.5, 0.51, 0.49, 0.5, 0.5, 0.53, 0.47]
ONE_HALF = [0.5] * 6 + [0.25] * 5 + [0.05]
"""Mean 0.36; that of the second half is below 0.22."""
LEAD = ("success", "magellan - random", "above 0")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Success of every category and evaluation: `MAGELLAN`, .2, `ONE_HALF` of online."""
    folder = tmp_path_factory.mktemp("claims")
    samplers = ("random", "online", "magellan")
    results = synthetic.combined(folder, samplers, seeds=SEEDS, episodes=4_000)
    evaluation = results.tables["evaluation"].copy()
    levels = {"magellan": MAGELLAN, "random": [0.2] * 12, "online": ONE_HALF}
    for sampler, values in levels.items():
        by_seed = dict(zip(SEEDS, values, strict=True))
        rows = evaluation["sampler"] == sampler
        evaluation.loc[rows, "success"] = evaluation.loc[rows, "seed"].map(by_seed)
    grasp = (evaluation["category"] == "grasp") & (evaluation["sampler"] == "magellan")
    evaluation.loc[grasp, "success"] = 0.95
    return synthetic.with_tables(results, evaluation=evaluation)


def file_of(*listed, seeds=12, halves=False):
    """Claims given as (measure, value, expected) and further keys."""
    entries = []
    for measure, value, expected, *rest in listed:
        keys = {"measure": measure, "value": value, "expected": expected, **dict(*rest)}
        entries.append({"claim": "c", "study": "known", "question": "q", **keys})
    study = {"seeds": seeds, "halves": halves, "setting": "made up", "fixed": "before"}
    return claims.Claims.model_validate({"studies": {"known": study}, "claims": entries})


def judge(reference, *listed, **keys):
    return claims.judge_by(file_of(*listed, **keys), {"known": reference})


@pytest.mark.parametrize(
    ("measure", "value", "expected", "verdict"),
    [
        ("success", "magellan - random", "above 0", "reproduced"),
        ("success", "magellan - random", "below 0", "contradicted"),
        ("success", "magellan - random", "above 0.9", "contradicted"),
        ("success", "magellan - random", "within 0.5", "reproduced"),
        ("success", "magellan - random", "within 0.1", "contradicted"),
        ("success", "magellan - random + random - magellan", "above 0", "undecided"),
        ("gain", "magellan", "above 0", "undecided"),
        ("mastered", "magellan", "above 0.5", "contradicted"),
        ("mastered", "magellan", "below 0.5", "reproduced"),
    ],
)
def test_verdicts_follow_the_criterion(reference, measure, value, expected, verdict):
    (claim,) = judge(reference, (measure, value, expected))
    assert claim.verdict == verdict


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("magelan - random", "value: 'magelan' is unknown; .*did you mean magellan/default"),
        ("magellan/mine", "value: 'magellan/mine' is unknown; allowed: random/default, "),
        ("magellan@7-7", "value: 'magellan@7-7' is unknown; allowed: 1000-400-200-100-50"),
    ],
)
def test_a_claim_on_what_a_study_never_had_is_refused(reference, value, says):
    with pytest.raises(InputError, match=says):
        judge(reference, ("success", value, "above 0"))


def test_a_folder_without_tables_of_studies_is_refused(tmp_path):
    with pytest.raises(InputError, match=f"^--reference: '{tmp_path}' is not allowed; allowed"):
        claims.judge(claims.load(), tmp_path)


def test_value_interval_and_p_are_those_of_the_pairs(reference):
    (claim,) = judge(reference, (*LEAD, {"category": "grow_plant"}))
    assert claim.n == 12
    assert claim.value == pytest.approx(np.mean(MAGELLAN) - 0.2)
    assert claim.low < claim.value < claim.high
    assert claim.p == pytest.approx(2 / 2**12)


def test_tests_of_a_question_are_corrected_together(reference):
    """Further ones of the protocol count: three values on both splits, one a claim as well."""
    listed = judge(reference, LEAD, LEAD, (*LEAD, {"question": "another"}))
    assert [claim.p_holm / claim.p for claim in listed] == pytest.approx([2, 2, 1])
    given = file_of(LEAD, (*LEAD, {"question": "another"}))
    values = ["magellan - random", "magellan - online", "magellan/other - random"]
    tests = [{"study": "known", "question": "q", "values": values}]
    given = claims.Claims.model_validate({**given.model_dump(), "tests": tests})
    *_, last = plan = reference.manifest["plan"]
    planned = {**reference.manifest, "plan": [*plan, {**last, "variant": "other"}]}
    first, other = claims.judge_by(given, {"known": replace(reference, manifest=planned)})
    assert (first.p_holm / first.p, other.p_holm / other.p) == pytest.approx((6, 1))


def test_the_first_table_has_a_row_for_each_question(reference):
    """Columns are those of the studies; what repeats a claim elsewhere has no row of its own."""
    asked = {"asks": "Is it ahead?"}
    given = file_of((*LEAD, asked), LEAD).model_dump()
    given["studies"]["long"] = {**given["studies"]["known"], "column": "longer"}
    later = {**given["claims"][0], "study": "long", "note": "so far 3 of 4"}
    given = claims.Claims.model_validate({**given, "claims": [*given["claims"], later]})
    first, paper, *_ = claims.to_tables(given, claims.judge_by(given, {"known": reference}))
    assert first.columns == ("the paper's claim", "here", "longer")
    [row] = first.rows
    later = "not tested; so far 3 of 4"
    assert (row[0], row[1][:12], row[2]) == ("Is it ahead?", "reproduced: ", later)
    assert len(paper.rows) == 2


def test_fewer_seeds_than_planned_are_not_judged_and_both_halves_must_agree(reference):
    (claim,) = judge(reference, LEAD, seeds=13)
    assert (claim.verdict, claim.n) == ("not tested", 12)
    assert np.isnan(claim.value)
    lead = ("success", "online - random + random", "above 0.22")
    (whole,) = judge(reference, lead)
    (halves,) = judge(reference, lead, halves=True)
    assert (whole.verdict, halves.verdict) == ("reproduced", "undecided")


def test_contradicted_claims_say_why(reference):
    wrong = ("success", "magellan - random", "below 0")
    unclear = ("gain", "magellan", "above 0", {"why": "nothing to explain"})
    given = file_of(LEAD, wrong, (*wrong, {"why": "the replay"}), unclear)
    table, *_ = claims.to_tables(given, claims.judge_by(given, {"known": reference}))
    verdicts = ["reproduced", "contradicted; unexplained", "contradicted; the replay", "undecided"]
    assert [row[-2].replace("*", "") for row in table.rows] == verdicts


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"value": "magellan minus random"}, "is no sum"),
        ({"expected": "more"}, "is no criterion; allowed: above X"),
        ({"study": "unknown"}, "study: 'unknown' is unknown; allowed: known"),
        ({"measure": "mastered", "value": "magellan + random"}, "allowed: one algorithm"),
        ({"measure": "mastered", "expected": "above 2"}, "a share from 0 to 1"),
        ({"measure": "mastered", "category": "grasp"}, "no category"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, keys, says):
    entry = {"claim": "c", "study": "known", "question": "q", "measure": "success"}
    entry |= {"value": "magellan", "expected": "above 0", **keys}
    study = {"seeds": 2, "setting": "a", "fixed": "b"}
    path = tmp_path / "claims.yaml"
    path.write_text(json.dumps({"studies": {"known": study}, "claims": [entry]}))
    with pytest.raises(InputError, match=says):
        claims.load(path)


def test_a_summary_page_has_the_verdicts_of_its_study(reference):
    """Those of the committed page; an experiment without claims has none."""
    assert claims.verdicts(reference) == []
    verdicts = claims.verdicts(store.load(claims.REFERENCE / "samplers"))
    assert verdicts[0].startswith(
        "Reproduced: MAGELLAN masters more of the goals than uniform choice. "
        "Success, magellan/base - random/base: +0.243 (+0."
    )
    given = claims.load()
    listed = [claim for claim in (*given.claims, *given.others) if claim.study == "samplers"]
    assert len(verdicts) == len(listed)
