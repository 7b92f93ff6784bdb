"""Claims about goal samplers, judged by the committed tables.

A claim is an entry of `analysis/report/claims.yaml`: a measure of each run, algorithms added and
subtracted seed by seed, and what is expected of the mean. The head of that file says how a verdict
follows.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field, field_validator, model_validator
from scipy import stats

from analysis.statistics import contrasts
from analysis.statistics.contrasts import BOOTSTRAP, Term
from analysis.statistics.intervals import Matrix, holm_within, sign_flip_test
from analysis.statistics.mastery import times_of
from analysis.tables import store
from analysis.tables.printing import LEVEL, Table, chance, interval_cell, p_equals
from analysis.tables.results import Results
from magellan.config.resolve import read_yaml
from magellan.core.errors import InputError, not_allowed, unknown
from magellan.core.settings import Section, validated

DEFAULT = Path(__file__).with_name("claims.yaml")
REFERENCE = Path("results/reference")
Verdict = Literal["reproduced", "contradicted", "undecided", "not tested"]

EXPECTED = re.compile(r"(above|below|within) (\d+(?:\.\d+)?)")


class Study(Section):
    """A study: the protocol of its claims and its setting.

    Attributes:
        seeds: number of seeds in the protocol; with fewer, no claim is judged.
        halves: whether both halves of the seeds must agree in sign with all of them.
        setting: model, budget, learner.
        fixed: when its claims were written down.
        source: where the paper states them.
        column: where its claims stand in the first table.
    """

    seeds: Annotated[int, Field(ge=1)]
    halves: bool = False
    setting: str
    fixed: str
    source: str = ""
    column: str = "here"


class Claim(Section):
    """One sentence and the number that decides it; the head of `claims.yaml` explains its keys."""

    claim: str
    study: str
    question: str
    measure: Literal["success", "error", "gain", "collapse", "mastered"]
    value: str
    expected: str
    split: Literal["train", "unseen"] = "train"
    category: str = ""
    asks: str = ""
    note: str = ""
    why: str = "unexplained"
    decides: str = ""

    @field_validator("value")
    @classmethod
    def _check_sum(cls, value: str) -> str:
        contrasts.parse(value)
        return value

    @field_validator("expected")
    @classmethod
    def _check_criterion(cls, value: str) -> str:
        if EXPECTED.fullmatch(value) is None:
            raise ValueError(f"{value!r} is no criterion; allowed: above X, below X, within X")
        return value

    @model_validator(mode="after")
    def _check_measure(self) -> Claim:
        if self.measure == "mastered":
            alone = len(self.terms) == 1 and self.terms[0].sign > 0
            if (
                not alone
                or self.category
                or self.criterion[0] == "within"
                or self.criterion[1] > 1.0
            ):
                raise InputError(
                    f"mastered: {self.value!r}, {self.expected!r}, category {self.category!r}; "
                    "allowed: one algorithm, above or below a share from 0 to 1, no category"
                )
        elif self.measure not in ("error", "collapse"):
            for term in self.terms:
                if term.estimator:
                    raise InputError(
                        f"value: {term.text} names an estimator; allowed: only with the measures "
                        "error and collapse"
                    )
        return self

    @property
    def terms(self) -> tuple[Term, ...]:
        """The algorithms of `value`."""
        return contrasts.parse(self.value)

    @property
    def sentence(self) -> str:
        """The claim, with the margin of its criterion if it has one."""
        if self.criterion[0] != "within":
            return self.claim
        return f"{self.claim.rstrip('.')} ({self.expected})."

    @property
    def criterion(self) -> tuple[str, float]:
        """`above`, `below` or `within`, and the threshold."""
        word, number = self.expected.split()
        return word, float(number)


class Tests(Section):
    """Tests of a protocol's family: p of the claims with this question is corrected over them."""

    study: str
    question: str
    measure: Literal["success", "error"] = "success"
    values: Sequence[str]
    splits: Sequence[Literal["train", "unseen"]] = ("train", "unseen")


class Claims(Section):
    """The claims file: claims of the paper, and of others, and further tests of their families."""

    studies: Mapping[str, Study]
    claims: Sequence[Claim]
    others: Sequence[Claim] = ()
    tests: Sequence[Tests] = ()

    @property
    def further(self) -> list[Claim]:
        """Those of `tests` that are no claims, as claims without words."""
        keys = ("study", "question", "measure", "value", "split")
        found = [
            Claim(claim="", expected="above 0", value=value, split=split, **words)
            for tests in self.tests
            for words in [tests.model_dump(exclude={"values", "splits"})]
            for value, split in itertools.product(tests.values, tests.splits)
        ]
        known = [
            [getattr(claim, key) for key in keys]
            for claim in (*self.claims, *self.others)
            if claim.criterion[0] != "within" and not claim.category
        ]
        return [one for one in found if [getattr(one, key) for key in keys] not in known]

    @model_validator(mode="after")
    def _check_studies(self) -> Claims:
        for claim in (*self.claims, *self.others, *self.further):
            if claim.study not in self.studies:
                raise unknown("study", claim.study, self.studies)
        return self


class Judged(NamedTuple):
    """A claim and its result; without runs, `value` and the interval are NaN.

    Attributes:
        n: runs, or pairs of runs with the same seed.
        p: two-sided, mean against threshold; NaN if the criterion is `within`.
        p_holm: corrected over the claims of the same question, and further tests of its family.
        equal: the value at equal episodes, of mean success where steps end the runs.
    """

    claim: Claim
    n: int = 0
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    equal: float = math.nan
    verdict: Verdict = "not tested"


def load(path: Path = DEFAULT) -> Claims:
    """Load the claims file.

    Raises:
        InputError: the file or a key is wrong; one line that names it.
    """
    return validated(Claims, read_yaml(path), f"{path}: ")


def judge(claims: Claims, reference: Path = REFERENCE) -> list[Judged]:
    """Judge every claim, in file order, by the tables in the folders below `reference`.

    Raises:
        InputError: none of the studies has tables there, or tables do not fit (see `judge_by`).
    """
    folders = [reference / name for name in claims.studies if (reference / name).is_dir()]
    if not folders:
        allowed = f"a folder with the tables of one of {', '.join(claims.studies)}"
        raise not_allowed("--reference", str(reference), allowed)
    return judge_by(claims, {folder.name: store.load(folder) for folder in folders})


def judge_by(claims: Claims, results: Mapping[str, Results]) -> list[Judged]:
    """Judge every claim by the results of the studies that have some.

    Raises:
        InputError: a claim names an algorithm, a goal space, a category or an estimator that the
            study lacks.
    """
    listed, further = [*claims.claims, *claims.others], claims.further
    judged, tested = (
        [_estimate(one, claims.studies[one.study], results.get(one.study)) for one in group]
        for group in (listed, further)
    )
    # A test without its runs counts as one that shows nothing: no p gets smaller for want of runs.
    p_values = [one.p for one in judged] + [1.0 if one.p != one.p else one.p for one in tested]
    corrected = holm_within(p_values, [claim.question for claim in (*listed, *further)])
    judged = [one._replace(p_holm=p) for one, p in zip(judged, corrected, strict=False)]
    return [
        result._replace(verdict=_verdict(result, claims.studies[result.claim.study], results))
        for result in judged
    ]


def _estimate(claim: Claim, study: Study, results: Results | None) -> Judged:
    """Value, interval and uncorrected p of a claim; `not tested` without the planned runs."""
    if results is None:
        return Judged(claim)
    for term in claim.terms:
        if term.algorithm(results) not in results.algorithms:
            raise unknown("value", term.text, ["/".join(name) for name in results.algorithms])
        if term.goal_space and term.goal_space not in results.experiment["goal_spaces"]:
            raise unknown("value", term.text, results.experiment["goal_spaces"])
    if not all(term.has_runs(results, results.goal_spaces[0]) for term in claim.terms):
        return Judged(claim)
    values = _values_by_seed(claim, results)
    if len(values) < study.seeds:
        return Judged(claim, len(values))
    word, threshold = claim.criterion
    if claim.measure == "mastered":
        test = stats.binomtest(int(values.sum()), len(values), threshold)
        interval = test.proportion_ci(BOOTSTRAP.confidence)
        bounds, p = (float(interval.low), float(interval.high)), float(test.pvalue)
    else:
        origin = 0.0 if word == "within" else threshold
        flipped = sign_flip_test(values - origin)
        bounds, p = (flipped.low + origin, flipped.high + origin), flipped.p
    p = math.nan if word == "within" else p
    equal = math.nan
    if claim.measure == "success" and results.unit != "episodes":
        equal = float(_values_by_seed(claim, results, "equal").mean())
    numbers = float(values.mean()), *bounds, p, math.nan, equal
    return Judged(claim, len(values), *numbers, "undecided")


def _values_by_seed(claim: Claim, results: Results, measure: str = "") -> Matrix:
    """The claim's value for each seed that all its algorithms have, increasing seeds: (n,).

    measure: instead of the claim's.
    """
    sides = [_measure(claim, results, term, measure or claim.measure) for term in claim.terms]
    return contrasts.total(claim.terms, sides).to_numpy()


def _measure(claim: Claim, results: Results, term: Term, measure: str) -> pd.Series:
    if measure == "mastered":
        space, algorithm = term.goal_space or results.goal_spaces[0], term.algorithm(results)
        times = times_of(results, algorithm, space, claim.split).values()
        mastered = np.all([flags for _, flags in times], axis=0)
        return pd.Series(mastered, results.seeds_of(algorithm, space), dtype=np.float64)
    scores = contrasts.scores(results, term, measure, claim.split)
    if not claim.category:
        return scores.mean(axis=1)
    if claim.category not in scores:
        raise unknown("category", claim.category, scores)
    return scores[claim.category]


def _verdict(judged: Judged, study: Study, results: Mapping[str, Results]) -> Verdict:
    """Apply the criterion in the head of `analysis/report/claims.yaml`."""
    if judged.verdict == "not tested":
        return judged.verdict
    word, threshold = judged.claim.criterion
    if word == "within":
        if -threshold <= judged.low and judged.high <= threshold:
            return "reproduced"
        outside = judged.low > threshold or judged.high < -threshold
        return "contradicted" if outside else "undecided"
    above, below = judged.low > threshold, judged.high < threshold
    if not judged.p_holm < LEVEL or not (above or below):
        return "undecided"
    if study.halves:
        values = _values_by_seed(judged.claim, results[judged.claim.study]) - threshold
        middle = len(values) // 2
        if not values[:middle].mean() * values[middle:].mean() > 0.0:
            return "undecided"
    return "reproduced" if above == (word == "above") else "contradicted"


def verdicts(results: Results) -> list[str]:
    """A sentence for each claim that this experiment was made to judge, tested or not.

    Empty for other experiments, also where one only has the name of such a study.
    """
    claims = load()
    try:
        judged = judge_by(claims, {results.experiment["experiment"]: results})
    except InputError:
        return []
    return [
        f"{result.verdict.capitalize()}: {result.claim.sentence} {_numbers(result)}"
        for result in judged
        if result.n and result.claim.study == results.experiment["experiment"]
    ]


def _numbers(judged: Judged) -> str:
    if judged.verdict == "not tested":
        return f"n = {judged.n} so far."
    measured = f"{judged.claim.measure.capitalize()}, {judged.claim.value}"
    return f"{measured}: {' '.join(_estimated(judged))}{_chances(judged)}, n = {judged.n}."


HEADER = ("claim", "value (95 % interval)", "equal episodes", "p, Holm", "verdict", "study")
SETTINGS = ("study", "in the paper", "setting", "n", "claims were fixed")
FIRST = "here"
"""Column of the first table whose claims have rows of their own."""


def to_tables(claims: Claims, judged: Sequence[Judged]) -> list[Table]:
    """Tables of the questions, the paper's claims, other claims, and studies.

    A claim that repeats another one in a further study stands in the table of questions alone.
    """
    asked = {one.claim.asks for one in judged if _column(claims, one) == FIRST} - {""}
    rows = [
        [
            _cells(one)
            for one in group
            if _column(claims, one) == FIRST or one.claim.asks not in asked
        ]
        for group in (judged[: len(claims.claims)], judged[len(claims.claims) :])
    ]
    titles = ("Claims of the paper", "Claims of others, and hypotheses of this suite")
    verdicts = [
        Table(title, HEADER, cells) for title, cells in zip(titles, rows, strict=True) if cells
    ]
    studies = [
        [f"`{name}`", study.source, study.setting, _counted(study, name, judged), study.fixed]
        for name, study in claims.studies.items()
    ]
    return [*_questions(claims, judged), *verdicts, Table("Studies", SETTINGS, studies)]


def _counted(study: Study, name: str, judged: Sequence[Judged]) -> str:
    """Runs or pairs behind the claims of a study; `4 of 8` with fewer than planned."""
    counts = sorted({one.n for one in judged if one.claim.study == name})
    return ", ".join(f"{n}" if n >= study.seeds else f"{n} of {study.seeds}" for n in counts)


def _column(claims: Claims, judged: Judged) -> str:
    return claims.studies[judged.claim.study].column


def _questions(claims: Claims, judged: Sequence[Judged]) -> list[Table]:
    """Table of what claims ask, a column for each kind of study; none if no claim asks."""
    columns = list(dict.fromkeys(study.column for study in claims.studies.values()))
    answers: dict[str, dict[str, str]] = {}
    for one in (one for one in judged if one.claim.asks):
        column = _column(claims, one)
        answers.setdefault(one.claim.asks, {})[column] = _answer(one, column != FIRST)
    rows = [[asks, *(cells.get(name, "") for name in columns)] for asks, cells in answers.items()]
    return [Table("In short", ("the paper's claim", *columns), rows)] * bool(rows)


def _answer(judged: Judged, alone: bool) -> str:
    """Verdict and value; all that a row says if the claim has no row of its own."""
    if judged.verdict == "not tested":
        return f"not tested{_remarks(judged)}"
    value, interval = _estimated(judged)
    if not alone:
        return f"{judged.verdict}: {value}"
    equal = "" if np.isnan(judged.equal) else f"; {judged.equal:+.3f} at equal episodes"
    return f"{judged.verdict}: {value} {interval}{_chances(judged)}{equal}{_remarks(judged)}"


def _remarks(judged: Judged) -> str:
    claim = judged.claim
    said = (
        (claim.note, True),
        (claim.why, judged.verdict == "contradicted"),
        (f"would decide: {claim.decides}", judged.verdict == "undecided" and claim.decides),
    )
    return "".join(f"; {text}" for text, applies in said if text and applies)


def _cells(judged: Judged) -> list[str]:
    sentence, study, remarks = judged.claim.sentence, f"`{judged.claim.study}`", _remarks(judged)
    if judged.verdict == "not tested":
        return [sentence, "", "", "", f"not tested{remarks}", study]
    equal = "" if np.isnan(judged.equal) else f"{judged.equal:+.3f}"
    verdict = f"**{judged.verdict}**{remarks}"
    return [sentence, " ".join(_estimated(judged)), equal, chance(judged.p_holm), verdict, study]


def _estimated(judged: Judged) -> tuple[str, str]:
    """Value, and interval in brackets."""
    form = ".2f" if judged.claim.measure == "mastered" else "+.3f"
    return f"{judged.value:{form}}", f"({interval_cell(judged.low, judged.high, form)})"


def _chances(judged: Judged) -> str:
    """Corrected p, empty where the criterion has none."""
    return f", {p_equals(judged.p_holm)}" if judged.p_holm == judged.p_holm else ""
