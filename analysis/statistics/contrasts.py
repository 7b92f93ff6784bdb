"""Contrasts: numbers of algorithms, added and subtracted seed by seed.

`magellan - random` is a difference, `magellan/a - random/a - magellan/b + random/b` a difference of
differences, `magellan` a mean. A term is SAMPLER, /VARIANT (default: that of the reference),
@GOAL-SPACE (default: each one) and :ESTIMATOR (default: the one that chooses goals, or the only
one). The value in a category is the mean over seeds. Where 0 is a hypothesis its interval inverts
the sign-flip test of the seeds, uncorrected; other means have a studentised bootstrap interval. p
is that of the mean of the categories, one number per run, Holm-corrected over the contrasts that
are given together. Runs of several phases are compared in their last one.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics import intervals, matrices, summaries
from analysis.statistics.intervals import Bootstrap, Interval, Matrix, sign_flip_test
from analysis.tables.grid import Algorithm, Run, run_name
from analysis.tables.printing import Table, chance, interval_cell
from analysis.tables.results import SPLITS, Results, rows_where
from magellan.core.errors import InputError

BOOTSTRAP = Bootstrap(repetitions=9_999)
NONE = "none: all equal"
"""Shown instead of an interval."""
MEAN = "mean"
"""Row of the mean of the categories."""
AFTER = 2
"""Evaluations after a collapse's own in which an estimator may notice it."""
SIGNED = ("gain", "collapse")
"""Measures that can be negative."""

TERM = re.compile(r"(?:^|([+-]) )([a-z][a-z0-9_]*)(?:/([\w.-]+))?(?:@([\w.-]+))?(?::(\w+))?")
FORM = "SAMPLER/VARIANT@SPACE:ESTIMATOR - ..."


class Term(NamedTuple):
    """One algorithm of a contrast: added (sign 1) or subtracted (-1); empty: see the module."""

    sign: int
    text: str
    sampler: str
    variant: str
    goal_space: str
    estimator: str

    def algorithm(self, results: Results) -> Algorithm:
        """The algorithm, of the reference's variant if the term names none."""
        return Algorithm(self.sampler, self.variant or results.reference.variant)

    def has_runs(self, results: Results, goal_space: str) -> bool:
        """Whether its algorithm has runs in its goal space, or else in this one."""
        space = self.goal_space or goal_space
        algorithm = self.algorithm(results)
        return any((run.algorithm, run.goal_space) == (algorithm, space) for run in results.runs)


def parse(text: str) -> tuple[Term, ...]:
    """Read a contrast.

    Raises:
        InputError: it is no sum or difference of terms.
    """
    found = list(TERM.finditer(text))
    if not text or " ".join(match.group() for match in found) != text:
        raise InputError(f"{text!r} is no sum; allowed: {FORM}")
    return tuple(
        Term(-1 if match[1] == "-" else 1, match.group().lstrip("+- "), *match.groups("")[1:])
        for match in found
    )


# --- measures -----------------------------------------------------------------------------------


MEASURES = {
    "success": "Mean success over training",
    "equal": "Mean success over as many episodes as the shortest run has (steps, if episodes end "
    "the runs)",
    "error": "Error of the predicted competence, mean over training",
    "gain": "Success at the last evaluation minus at the first",
    "collapse": "Learning progress at the first collapse minus its largest before",
}
"""Titles of the numbers that each run has for each category."""


def _predicted(
    of: str, frame: pd.DataFrame, results: Results, term: Term, space: str, split: str
) -> pd.DataFrame:
    """Rows of the estimator that a term names, or else of the one that drives it, or the only one.

    Raises:
        InputError: there is none, or several.
    """
    algorithm = term.algorithm(results)
    frame = rows_where(frame, goal_space=space, split=split, **algorithm._asdict())
    estimators = list(dict.fromkeys(frame["estimator"]))
    preferred = term.estimator or results.driver_of(algorithm)
    candidates = [name for name in estimators if name == preferred]
    candidates = candidates or ([] if term.estimator else estimators)
    if len(candidates) != 1:
        listed = ", ".join(estimators) or "none"
        raise InputError(f"{algorithm.sampler}: {of} needs one estimator; allowed: {listed}")
    return rows_where(frame, estimator=candidates[0])


def around_collapses(
    results: Results, term: Term, space: str, split: str, elsewhere: bool = False
) -> pd.DataFrame:
    """An estimator's learning progress at the first collapse of each category that has one.

    Evaluations of the first `BURN_IN` of training do not count. Collapses without one before, or
    without `AFTER` more after the one that shows them, are left out. With `elsewhere`, instead: of
    each category that never collapses in a run, at the times of all those collapses.

    Returns:
        Columns `seed`, `category`, `shown` (training length at the evaluation that shows the
        collapse), `at` (largest from there to the `AFTER` next ones), `before` (largest before).
    """
    frame = _predicted("collapse", results.tables["competence"], results, term, space, split)
    frame = frame.set_index(["seed", "category", results.unit_column]).sort_index()
    points = matrices.evaluation_points(results, space)
    settled = points > points[0] + matrices.BURN_IN * (points[-1] - points[0])
    algorithm, names = term.algorithm(results), matrices.evaluated_categories(results, space, split)
    seeds = results.seeds_of(algorithm, space)
    fallen = matrices.collapsed(matrices.success_curves(results, algorithm, space, split))
    falls, first = fallen.any(axis=-1), fallen.argmax(axis=-1) + 1
    rows = []
    for run, category in np.argwhere(falls != elsewhere).tolist():
        key = seeds[run], names[category]
        progress = frame.loc[key, "learning_progress"].reindex(points).to_numpy()
        for shown in first[falls].tolist() if elsewhere else [first[run, category]]:
            before, at = progress[:shown][settled[:shown]], progress[shown : shown + 1 + AFTER]
            if len(before) and len(at) > AFTER:
                rows.append((*key, points[shown], at.max(), before.max()))
    return pd.DataFrame(rows, columns=["seed", "category", "shown", "at", "before"])


def scores(
    results: Results, term: Term, of: str, split: str = "train", goal_space: str = ""
) -> pd.DataFrame:
    """Numbers of a term's runs, without its sign: a row for each seed, a column for each category.

    Args:
        of: a key of `MEASURES`.
        goal_space: for a term that names none (default: the first).

    Raises:
        InputError: errors are asked for, and the term has no predictions or several observers.
    """
    space = term.goal_space or goal_space or results.goal_spaces[0]
    algorithm = term.algorithm(results)
    if of == "error":  # also of impossible goals
        frame = _predicted(of, summaries.predictions(results), results, term, space, split)
        errors = summaries.errors_of(frame, results.unit_column)
        errors = errors.pivot_table(index="seed", columns="category", values="mean_absolute_error")
        return errors[[name for name in results.categories.names if name in errors.columns]]
    if of == "collapse":  # NaN without one
        found = around_collapses(results, term, space, split)
        found["difference"] = found["at"] - found["before"]
        table = found.pivot_table(index="seed", columns="category", values="difference")
        names = matrices.evaluated_categories(results, space, split)
        return table.reindex(results.seeds_of(algorithm, space), columns=list(names))
    score = "area" if of == "success" else of
    return matrices.run_scores(results, algorithm, space, split, score)


def total(terms: Sequence[Term], sides: Sequence[pd.DataFrame | pd.Series]) -> pd.DataFrame:
    """Numbers of a contrast, for the seeds that all its terms have, increasing."""
    signed = (term.sign * side for term, side in zip(terms, sides, strict=True))
    return sum(signed).dropna(how="all").sort_index()


def is_tested(terms: Sequence[Term], of: str) -> bool:
    """Whether 0 is a hypothesis: of differences, and of measures that can be negative."""
    return of in SIGNED or sum(term.sign for term in terms) == 0


def mean_of(values: Matrix, terms: Sequence[Term], of: str) -> Interval:
    """Mean of a contrast's numbers (seeds,) and its interval."""
    if is_tested(terms, of):
        return sign_flip_test(values).interval
    added = sum(term.sign > 0 for term in terms)
    return intervals.mean_interval(values, BOOTSTRAP, (added - len(terms), added))


# --- comparisons --------------------------------------------------------------------------------


class Compared(NamedTuple):
    """A contrast in a goal space, on a split of the goals."""

    text: str
    terms: tuple[Term, ...]
    goal_space: str  # empty if the terms name several
    split: str
    sides: Sequence[pd.DataFrame]  # numbers of each term, (seeds, categories)
    p: float  # of the mean of the categories; NaN where 0 is no hypothesis: means without a sign
    p_holm: float = np.nan  # corrected over the tests of its family
    tests: int = 0


def compare(
    results: Results, contrasts: Sequence[str], of: str = "success", splits: Sequence[str] = SPLITS
) -> list[Compared]:
    """Compute contrasts in every goal space, or once if all terms name one.

    p values are corrected over the contrasts of a goal space, on each split or on all together
    (`analysis.family`).

    Raises:
        InputError: a contrast is given twice, has no runs, or a seed or category that not all its
            terms have.
    """
    compared, known = [], []
    for text in contrasts:
        terms = parse(text)
        spaces, keys = _spaces(results, text, terms), []
        if len({t[2:] for t in terms}) < len(terms):
            raise InputError(f"{text!r} has a term twice; allowed: different terms")
        for space, sign in itertools.product(spaces, (-1, 1)):
            # Also a difference the other way round, or in other words, is the same test.
            names = [(t.algorithm(results), t.goal_space or space) for t in terms]
            drivers = [t.estimator or results.driver_of(t.algorithm(results)) or "" for t in terms]
            keys.append(sorted(zip([sign * t.sign for t in terms], names, drivers, strict=True)))
        if any(key in known for key in keys):
            raise InputError(f"{text!r} is given twice; allowed: different contrasts")
        known += keys
        for space, split in itertools.product(spaces, splits):
            sides = [scores(results, term, of, split, space) for term in terms]
            if any(list(side) != list(sides[0]) for side in sides):
                raise InputError(
                    f"{text!r}: its terms have different categories; allowed: goal spaces with the "
                    "same ones"
                )
            p = np.nan
            if is_tested(terms, of):
                values = total(terms, sides).mean(axis=1).dropna().to_numpy()
                p = sign_flip_test(values).p if len(values) else np.nan
            compared.append(Compared(text, terms, space, split, sides, p))
    together = matrices.settings(results).family == "question"
    families = [(one.goal_space, "" if together else one.split) for one in compared]
    corrected = intervals.holm_within([one.p for one in compared], families)
    counts = Counter(
        family for family, one in zip(families, compared, strict=True) if one.p == one.p
    )
    return [
        one._replace(p_holm=p, tests=counts[family])
        for one, p, family in zip(compared, corrected, families, strict=True)
    ]


def _spaces(results: Results, text: str, terms: Sequence[Term]) -> list[str]:
    """Goal spaces in which all terms have runs, of the same seeds; empty: those they name."""
    named = {term.goal_space for term in terms}
    across = [*named] if len(named) == 1 else [""]
    candidates = results.goal_spaces if "" in named else across
    spaces = [space for space in candidates if all(t.has_runs(results, space) for t in terms)]
    if not spaces:
        having = (algorithm for algorithm in results.algorithms if results.manifests_of(algorithm))
        names = ", ".join("/".join(algorithm) for algorithm in having)
        raise InputError(
            f"{text!r}: not all terms have runs; allowed: {names}, with @ and one of "
            f"{', '.join(results.goal_spaces)}"
        )
    for space in spaces:
        places = [(term.algorithm(results), term.goal_space or space) for term in terms]
        first, *others = (set(results.seeds_of(*place)) for place in places)
        for place, seeds in zip(places[1:], others, strict=True):
            for seed in sorted(seeds ^ first):
                algorithm, name = place if seed in seeds else places[0]
                run = Run(*algorithm, name, seed)
                raise InputError(f"{text!r}: {run_name(run)} exists on one side only")
    return spaces


# --- tables -------------------------------------------------------------------------------------


def tables(
    results: Results,
    contrasts: Sequence[str],
    of: str = "success",
    splits: Sequence[str] = SPLITS,
    truth: str = "",
) -> list[Table]:
    """A table for each contrast and goal space: a row per split and category, and for their mean.

    truth: reference of the errors; empty: observed success. Others: as for `compare`.
    """
    measure = MEASURES[of] + (f" against {truth}" if truth else "") + results.counted_from
    compared = compare(results, contrasts, of, splits)
    return [
        _table(measure, of, list(group))
        for _, group in itertools.groupby(compared, lambda one: (one.text, one.goal_space))
    ]


def _table(measure: str, of: str, on_splits: Sequence[Compared]) -> Table:
    first = on_splits[0]
    tests = [one.tests for one in on_splits if one.p == one.p]
    several = max(tests, default=0) > 1
    terms = [term.text for term in first.terms] if len(first.terms) > 1 else []
    header = ["split", "category", *terms, "difference" if terms else "mean"]
    header += [f"{BOOTSTRAP.confidence:.0%} interval", "n", "halves of the seeds", "p"]
    header += ["p, uncorrected"] * several
    rows = []
    for one in on_splits:
        difference = total(one.terms, one.sides)
        # Means of the terms are of the runs and categories that the difference is of.
        shown = [side.where(difference.notna()) for side in one.sides[: len(terms)]]
        sides = [side.assign(**{MEAN: side.mean(axis=1)}) for side in (*shown, difference)]
        p_values = [one.p_holm, *[one.p] * several]
        for name, column in sides[-1].items():
            values = column.dropna().to_numpy()
            cells = [f"{side[name].mean():.3f}" if len(values) else "" for side in sides[:-1]]
            tested = [""] * (1 + len(p_values))
            if name == MEAN:
                tested = [halves(values), *map(chance, p_values)]
            rows.append([one.split, name, *cells, *_numbers(values, one.terms, of), *tested])
    counts = " and ".join(map(str, dict.fromkeys(tests)))
    holm = f", Holm over {counts}; intervals uncorrected" if several else ""
    test = f" (sign flips by seed{holm})" if tests else ""
    where = f", goal space {first.goal_space}" if first.goal_space else ""
    return Table(f"{measure}{where}: {first.text}{test}", header, rows)


def halves(values: Matrix) -> str:
    """Means of both halves of (increasing seeds,); empty for fewer than four seeds."""
    middle = len(values) // 2
    return f"{values[:middle].mean():+.2f}, {values[middle:].mean():+.2f}" if middle > 1 else ""


def _numbers(values: Matrix, terms: Sequence[Term], of: str) -> list[str]:
    """Mean, interval and n of (seeds,), with signs where it may be negative."""
    if not len(values):
        return ["", "", "0"]
    mean, low, high = mean_of(values, terms, of)
    form = "+.3f" if is_tested(terms, of) or any(term.sign < 0 for term in terms) else ".3f"
    equal = len(values) > 1 and np.ptp(values) <= intervals.ROUNDING
    return [f"{mean:{form}}", NONE if equal else interval_cell(low, high, form), str(len(values))]
