"""Claims about goal samplers and what the committed tables say of each.

A claim is an entry of `analysis/report/claims.yaml`: a number of every run (its measure),
algorithms that are added and subtracted run by run, and what is expected of the mean. The rule of
the verdict stands in the head of that file; it is fixed before the runs that it judges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator, model_validator
from scipy import stats

from analysis.statistics.comparison import BOOTSTRAP, Side, error_of, mean_difference, success_of
from analysis.statistics.intervals import Matrix, holm, sign_flip_test
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import evaluated_categories, success_curves
from analysis.studies.halves import SIGNIFICANT
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import Table, between
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
    """Where the runs of claims are, how many there have to be, and how far they are from the paper.

    Attributes:
        seeds: the protocol's number; with fewer no claim is judged.
        halves: whether both halves of the seeds must have the sign of all.
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
    def _is_a_sum(cls, value: str) -> str:
        if " ".join(found.group() for found in TERM.finditer(value)) != value:
            raise ValueError(f"{value!r} is no sum; allowed: SAMPLER/VARIANT@SPACE:ESTIMATOR - ...")
        return value

    @field_validator("expected")
    @classmethod
    def _is_a_rule(cls, value: str) -> str:
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
        """`above`, `below` or `within`, and of what."""
        word, number = self.expected.split()
        return word, float(number)


class Claims(Section):
    """The file of claims: of the paper, and of others."""

    studies: Mapping[str, Study]
    claims: Sequence[Claim]
    others: Sequence[Claim] = ()

    @model_validator(mode="after")
    def _studies_are_there(self) -> Claims:
        for each in (*self.claims, *self.others):
            if each.study not in self.studies:
                allowed = ", ".join(self.studies)
                raise InputError(f"study: {each.study!r} is unknown; allowed: {allowed}")
        return self


class Judged(NamedTuple):
    """A claim and what came out; without runs `value` and the interval are NaN.

    Attributes:
        n: runs, or pairs of runs with the same seed.
        p: two-sided, of the mean against the threshold; NaN where the rule is `within`.
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
    """The file of claims.

    Raises:
        InputError: the file or a key is wrong; one line that names it.
    """
    return validated(Claims, read_yaml(path), f"{path}: ")


def judge(claims: Claims, reference: Path = REFERENCE) -> list[Judged]:
    """Every claim in the order of the file, from the tables in the folders below `reference`."""
    names = dict.fromkeys(each.study for each in (*claims.claims, *claims.others))
    there = [name for name in names if (reference / name).is_dir()]
    return judge_by(claims, {name: store.load(reference / name) for name in there})


def judge_by(claims: Claims, results: Mapping[str, Results]) -> list[Judged]:
    """Every claim, by the results of each study that is there.

    Raises:
        InputError: a claim is about a category or an estimator that the tables do not have.
    """
    listed = [*claims.claims, *claims.others]
    judged = [_judged(each, claims.studies[each.study], results.get(each.study)) for each in listed]
    for key in {(each.study, each.question) for each in listed}:
        mine = [at for at, each in enumerate(listed) if (each.study, each.question) == key]
        corrected = holm(np.array([judged[at].p for at in mine]))
        for at, p in zip(mine, corrected, strict=True):
            judged[at] = judged[at]._replace(p_holm=float(p))
    return [
        each._replace(verdict=_verdict(each, claims.studies[each.claim.study], results))
        for each in judged
    ]


def _judged(claim: Claim, study: Study, results: Results | None) -> Judged:
    """Value, interval and p of a claim, not yet corrected; nothing without the planned runs."""
    unknown = math.nan
    nothing = Judged(claim, 0, unknown, unknown, unknown, unknown, unknown, "not tested")
    if results is None or any(_absent(results, term) for term in claim.terms):
        return nothing
    values = _values(claim, results)
    if len(values) < study.seeds:
        return nothing._replace(n=len(values))
    word, threshold = claim.rule
    if claim.measure == "mastered":
        found = stats.binomtest(int(values.sum()), len(values), threshold)
        interval = found.proportion_ci(BOOTSTRAP.confidence)
        ends, p = (float(interval.low), float(interval.high)), float(found.pvalue)
    else:
        _, interval = mean_difference(values)
        ends = interval or (float(values.mean()),) * 2
        p = sign_flip_test(values - (threshold if word != "within" else 0.0), BOOTSTRAP.seed).p
    p = math.nan if word == "within" else p
    return Judged(claim, len(values), float(values.mean()), *ends, p, math.nan, "undecided")


def _absent(results: Results, term: Term) -> bool:
    space = term.goal_space or results.goal_spaces[0]
    there = space in results.goal_spaces and term.algorithm in results.algorithms_in(space)
    return not there


def _values(claim: Claim, results: Results) -> Matrix:
    """The claim's number of each seed that all its algorithms have, in increasing order: (n,)."""
    columns = []
    for term in claim.terms:
        space = term.goal_space or results.goal_spaces[0]
        seeds = sorted(results.seeds_of(term.algorithm, space))
        columns.append(dict(zip(seeds, term.sign * _measured(claim, results, term), strict=True)))
    common = sorted(set.intersection(*(set(column) for column in columns)))
    return np.array([sum(column[seed] for column in columns) for seed in common])


def _measured(claim: Claim, results: Results, term: Term) -> Matrix:
    """The measure of each run of an algorithm, seeds in increasing order: (runs,)."""
    space = term.goal_space or results.goal_spaces[0]
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
    """By the rule in the head of `analysis/report/claims.yaml`."""
    if judged.verdict == "not tested":
        return judged.verdict
    word, threshold = judged.claim.rule
    if word == "within":
        if -threshold <= judged.low and judged.high <= threshold:
            return "reproduced"
        outside = judged.low > threshold or judged.high < -threshold
        return "contradicted" if outside else "undecided"
    if not judged.p_holm < SIGNIFICANT or (study.halves and not _repeated(judged, results)):
        return "undecided"
    above, below = judged.low > threshold, judged.high < threshold
    if not (above or below):
        return "undecided"
    return "reproduced" if above == (word == "above") else "contradicted"


def _repeated(judged: Judged, results: Mapping[str, Results]) -> bool:
    """Whether the mean is on the same side of the threshold in both halves of the seeds."""
    values = _values(judged.claim, results[judged.claim.study]) - judged.claim.rule[1]
    middle = len(values) // 2
    signs = {math.copysign(1.0, part.mean()) for part in (values[:middle], values[middle:])}
    return len(signs) == 1 and 0.0 not in (values[:middle].mean(), values[middle:].mean())


HEADER = ("claim", "source", "value", "95% interval", "n", "p, Holm", "verdict", "study")
SETTINGS = ("study", "setting", "runs of each", "rules were fixed")


def to_tables(claims: Claims, judged: Sequence[Judged]) -> list[Table]:
    """Claims of the paper, of others, the studies, and what would decide open claims."""
    count = len(claims.claims)
    titles = {"Claims of the paper": judged[:count], "Claims of others": judged[count:]}
    found = [
        Table(title, HEADER, [_cells(claims, each) for each in chosen])
        for title, chosen in titles.items()
        if chosen
    ]
    studies = [
        [f"`{name}`", each.setting, str(each.seeds), each.fixed]
        for name, each in claims.studies.items()
        if name != NO_STUDY
    ]
    waiting = [
        [each.claim.claim, each.claim.decides]
        for each in judged
        if each.verdict != "reproduced" and each.claim.decides
    ]
    return [
        *found,
        Table("Studies", SETTINGS, studies),
        Table("What would decide", ("claim", "decided by"), waiting),
    ]


def _cells(claims: Claims, judged: Judged) -> list[str]:
    claim = judged.claim
    study = "" if claim.study == NO_STUDY else f"`{claim.study}`"
    names = [claim.claim, claim.source]
    if judged.verdict == "not tested":
        planned = claims.studies[claim.study].seeds
        return [
            *names,
            "",
            "",
            f"{judged.n} of {planned}" if study else "0",
            "",
            "not tested",
            study,
        ]
    form = ".2f" if claim.measure == "mastered" else "+.3f"
    p = "" if math.isnan(judged.p_holm) else f"{judged.p_holm:.3f}"
    numbers = [f"{judged.value:{form}}", between(judged.low, judged.high, form), str(judged.n), p]
    return [*names, *numbers, f"**{judged.verdict}**", study]
