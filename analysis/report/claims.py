"""Claims about goal samplers, judged by the committed tables.

A claim is an entry of `analysis/report/claims.yaml`: a measure of each run, algorithms added and
subtracted seed by seed, and what is expected of the mean. The head of that file gives the rule for
verdicts, fixed before the runs that it judges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field, field_validator, model_validator
from scipy import stats

from analysis.statistics.comparison import BOOTSTRAP, Side, error_of, mean_difference, success_of
from analysis.statistics.intervals import Matrix, holm, sign_flip_test
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import evaluated_categories, success_curves
from analysis.statistics.standing import LEVEL
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import Table, interval_cell
from analysis.tables.results import Results
from magellan.config.resolve import read_yaml
from magellan.config.schema import PLAIN
from magellan.core.errors import InputError
from magellan.core.settings import Section, validated

DEFAULT = Path(__file__).with_name("claims.yaml")
REFERENCE = Path("results/reference")
NO_STUDY = "none"
Verdict = Literal["reproduced", "contradicted", "undecided", "not tested"]

ALGORITHM = r"([a-z0-9_]+)(?:/(\w+))?(?:@([\w-]+))?(?::(\w+))?"
TERM = re.compile(rf"(?:^|([+-]) ){ALGORITHM}")
EXPECTED = re.compile(r"(above|below|within) (\d+(?:\.\d+)?)")


class Term(NamedTuple):
    """One algorithm of a claim's value: added (sign 1) or subtracted (-1)."""

    sign: int
    algorithm: Algorithm
    goal_space: str
    estimator: str


class Study(Section):
    """A study: the protocol of its claims and its setting.

    Attributes:
        seeds: number of seeds in the protocol; with fewer, no claim is judged.
        halves: whether both halves of the seeds must agree in sign with all of them.
        setting: model, budget, learner.
        fixed: when the rules of its claims were written down.
    """

    seeds: Annotated[int, Field(ge=1)]
    halves: bool = False
    setting: str
    fixed: str


class Claim(Section):
    """One sentence and the number that decides it; the head of `claims.yaml` explains its keys."""

    claim: str
    source: str
    study: str
    question: str
    measure: Literal["success", "error", "gain", "mastered"]
    value: str
    expected: str
    split: Literal["train", "unseen"] = "train"
    category: str = ""
    decides: str = ""

    @field_validator("value")
    @classmethod
    def _check_sum(cls, value: str) -> str:
        if " ".join(match.group() for match in TERM.finditer(value)) != value:
            raise ValueError(f"{value!r} is no sum; allowed: SAMPLER/VARIANT@SPACE:ESTIMATOR - ...")
        return value

    @field_validator("expected")
    @classmethod
    def _check_rule(cls, value: str) -> str:
        if EXPECTED.fullmatch(value) is None:
            raise ValueError(f"{value!r} is no rule; allowed: above X, below X, within X")
        return value

    @property
    def terms(self) -> list[Term]:
        """The algorithms of `value`."""
        return [
            Term(-1 if sign == "-" else 1, Algorithm(name, variant or PLAIN), space, estimator)
            for sign, name, variant, space, estimator in TERM.findall(self.value)
        ]

    @property
    def rule(self) -> tuple[str, float]:
        """`above`, `below` or `within`, and the threshold."""
        word, number = self.expected.split()
        return word, float(number)


class Claims(Section):
    """The claims file: claims of the paper, and of others."""

    studies: Mapping[str, Study]
    claims: Sequence[Claim]
    others: Sequence[Claim] = ()

    @model_validator(mode="after")
    def _check_studies(self) -> Claims:
        for claim in (*self.claims, *self.others):
            if claim.study not in self.studies:
                allowed = ", ".join(self.studies)
                raise InputError(f"study: {claim.study!r} is unknown; allowed: {allowed}")
        return self


class Judged(NamedTuple):
    """A claim and its result; without runs, `value` and the interval are NaN.

    Attributes:
        n: runs, or pairs of runs with the same seed.
        p: two-sided, mean against threshold; NaN if the rule is `within`.
        p_holm: corrected over the claims of the same study and question.
    """

    claim: Claim
    n: int
    value: float
    low: float
    high: float
    p: float
    p_holm: float
    verdict: Verdict


def load(path: Path = DEFAULT) -> Claims:
    """Load the claims file.

    Raises:
        InputError: the file or a key is wrong; one line that names it.
    """
    return validated(Claims, read_yaml(path), f"{path}: ")


def judge(claims: Claims, reference: Path = REFERENCE) -> list[Judged]:
    """Judge every claim, in file order, by the tables in the folders below `reference`."""
    folders = [reference / name for name in claims.studies if (reference / name).is_dir()]
    return judge_by(claims, {folder.name: store.load(folder) for folder in folders})


def judge_by(claims: Claims, results: Mapping[str, Results]) -> list[Judged]:
    """Judge every claim by the results of the studies that have some.

    Raises:
        InputError: a claim names a category or an estimator that the tables lack.
    """
    listed = [*claims.claims, *claims.others]
    judged = [
        _estimate(claim, claims.studies[claim.study], results.get(claim.study)) for claim in listed
    ]
    for family in {(claim.study, claim.question) for claim in listed}:
        rows = [i for i, claim in enumerate(listed) if (claim.study, claim.question) == family]
        corrected = holm(np.array([judged[row].p for row in rows]))
        for row, p in zip(rows, corrected, strict=True):
            judged[row] = judged[row]._replace(p_holm=float(p))
    return [
        result._replace(verdict=_verdict(result, claims.studies[result.claim.study], results))
        for result in judged
    ]


def _estimate(claim: Claim, study: Study, results: Results | None) -> Judged:
    """Value, interval and uncorrected p of a claim; `not tested` without the planned runs."""
    nan = math.nan
    untested = Judged(claim, 0, nan, nan, nan, nan, nan, "not tested")
    if results is None or any(_lacks_runs(results, term) for term in claim.terms):
        return untested
    values = _values_by_seed(claim, results)
    if len(values) < study.seeds:
        return untested._replace(n=len(values))
    word, threshold = claim.rule
    if claim.measure == "mastered":
        test = stats.binomtest(int(values.sum()), len(values), threshold)
        interval = test.proportion_ci(BOOTSTRAP.confidence)
        bounds, p = (float(interval.low), float(interval.high)), float(test.pvalue)
    else:
        _, interval = mean_difference(values, len(claim.terms))
        bounds = interval or (float(values.mean()),) * 2
        p = sign_flip_test(values - (threshold if word != "within" else 0.0), BOOTSTRAP.seed).p
    p = math.nan if word == "within" else p
    return Judged(claim, len(values), float(values.mean()), *bounds, p, math.nan, "undecided")


def _lacks_runs(results: Results, term: Term) -> bool:
    space = term.goal_space or results.goal_spaces[0]
    return space not in results.goal_spaces or term.algorithm not in results.algorithms_in(space)


def _values_by_seed(claim: Claim, results: Results) -> Matrix:
    """The claim's value for each seed that all its algorithms have, increasing seeds: (n,)."""
    columns = []
    for term in claim.terms:
        space = term.goal_space or results.goal_spaces[0]
        seeds = sorted(results.seeds_of(term.algorithm, space))
        columns.append(pd.Series(term.sign * _measure(claim, results, term, space), index=seeds))
    return pd.concat(columns, axis=1, join="inner").sort_index().sum(axis=1).to_numpy()


def _measure(claim: Claim, results: Results, term: Term, space: str) -> Matrix:
    """The measure of each run of an algorithm in a goal space, increasing seeds: (runs,)."""
    side = Side("", results, term.algorithm, term.estimator)
    order = np.argsort(results.seeds_of(term.algorithm, space))
    if claim.measure == "mastered":
        times = times_of(results, term.algorithm, space, claim.split).values()
        return np.all([mastered for _, mastered in times], axis=0)[order].astype(np.float64)
    if claim.measure == "gain":
        curves = success_curves(results, term.algorithm, space, claim.split)
        names = list(evaluated_categories(results, space, claim.split))
        scores = (curves[..., -1] - curves[..., 0])[order]
    else:
        measure = {"success": success_of, "error": error_of}[claim.measure]
        names, scores = measure(side, space, claim.split)
    if not claim.category:
        return scores.mean(axis=1)
    if claim.category not in names:
        allowed = ", ".join(names)
        raise InputError(f"category: {claim.category!r} is unknown; allowed: {allowed}")
    return scores[:, names.index(claim.category)]


def _verdict(judged: Judged, study: Study, results: Mapping[str, Results]) -> Verdict:
    """Apply the rule in the head of `analysis/report/claims.yaml`."""
    if judged.verdict == "not tested":
        return judged.verdict
    word, threshold = judged.claim.rule
    if word == "within":
        if -threshold <= judged.low and judged.high <= threshold:
            return "reproduced"
        outside = judged.low > threshold or judged.high < -threshold
        return "contradicted" if outside else "undecided"
    if not judged.p_holm < LEVEL or (study.halves and not _halves_agree(judged, results)):
        return "undecided"
    above, below = judged.low > threshold, judged.high < threshold
    if not (above or below):
        return "undecided"
    return "reproduced" if above == (word == "above") else "contradicted"


def _halves_agree(judged: Judged, results: Mapping[str, Results]) -> bool:
    """Whether the mean is on the same side of the threshold in both halves of the seeds."""
    values = _values_by_seed(judged.claim, results[judged.claim.study]) - judged.claim.rule[1]
    middle = len(values) // 2
    return bool(values[:middle].mean() * values[middle:].mean() > 0.0)


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
        f"{result.verdict.capitalize()}: {' '.join(result.claim.claim.split())} {_numbers(result)}"
        for result in judged
        if result.n and result.claim.study == results.experiment["experiment"]
    ]


def _numbers(judged: Judged) -> str:
    if judged.verdict == "not tested":
        return f"n = {judged.n} so far."
    value, interval, n, p = _statistics(judged)
    measured = f"{judged.claim.measure.capitalize()}, {judged.claim.value}"
    return f"{measured}: {value} ({interval}){p and f', p = {p}'}, n = {n}."


HEADER = ("claim", "source", "value", "95% interval", "n", "p, Holm", "verdict", "study")
SETTINGS = ("study", "setting", "runs of each", "rules were fixed")


def to_tables(claims: Claims, judged: Sequence[Judged]) -> list[Table]:
    """Tables of the paper's claims, other claims, studies, and what would decide open claims."""
    count = len(claims.claims)
    titles = {"Claims of the paper": judged[:count], "Claims of others": judged[count:]}
    verdicts = [
        Table(title, HEADER, [_cells(claims, result) for result in group])
        for title, group in titles.items()
        if group
    ]
    studies = [
        [f"`{name}`", study.setting, str(study.seeds), study.fixed]
        for name, study in claims.studies.items()
        if name != NO_STUDY
    ]
    undecided = [
        [result.claim.claim, result.claim.decides]
        for result in judged
        if result.verdict != "reproduced" and result.claim.decides
    ]
    return [
        *verdicts,
        Table("Studies", SETTINGS, studies),
        Table("What would decide", ("claim", "decided by"), undecided),
    ]


def _cells(claims: Claims, judged: Judged) -> list[str]:
    claim = judged.claim
    study = "" if claim.study == NO_STUDY else f"`{claim.study}`"
    names = [claim.claim, claim.source]
    if judged.verdict == "not tested":
        n = f"{judged.n} of {claims.studies[claim.study].seeds}" if study else "0"
        return [*names, "", "", n, "", "not tested", study]
    return [*names, *_statistics(judged), f"**{judged.verdict}**", study]


def _statistics(judged: Judged) -> tuple[str, str, str, str]:
    """Value, interval, n and corrected p, which is empty where the rule has none."""
    form = ".2f" if judged.claim.measure == "mastered" else "+.3f"
    p = "" if math.isnan(judged.p_holm) else f"{judged.p_holm:.3f}".replace("0.000", "< 0.001")
    interval = interval_cell(judged.low, judged.high, form)
    return f"{judged.value:{form}}", interval, str(judged.n), p
