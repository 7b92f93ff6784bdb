"""Verdicts on claims, from runs whose numbers are known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from analysis.report import claims
from analysis.tables import store
from magellan.core.errors import InputError
from tests.analysis import synthetic

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
