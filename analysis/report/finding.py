"""An experiment's finding in sentences: its pre-registered comparison and the limits of its runs.

The winner is the subject of its sentence; pairs that are not told apart have one too.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.intervals import TIE, Matrix, permutation_test
from analysis.statistics.matrices import evaluated_categories, settings
from analysis.statistics.primary import PRIMARY_SCORE, run_means
from analysis.tables.grid import (
    Algorithm,
    number_text,
)
from analysis.tables.labels import (
    SCORE_LABELS,
    SPLIT_LABELS,
)
from analysis.tables.phases import practised_split
from analysis.tables.printing import chance, p_equals, short
from analysis.tables.results import Results, rows_where

NEVER = "at no size, however large: that takes more runs"
CRUDE = 8
"""Number of runs below which intervals are crude (docs/statistics.md)."""
SHOWN = 3
"""Sentences per line in the terminal."""


class Finding(NamedTuple):
    """Sentences about an experiment.

    Attributes:
        told: pairs that are told apart, winner first.
        untold: pairs that are not, or why there is no comparison.
        measured: what is compared, and how.
        limits: what so few runs cannot show.
    """

    told: list[str]
    untold: list[str]
    measured: str
    limits: list[str]


def finding(results: Results, statistics: Mapping[str, pd.DataFrame]) -> Finding:
    """The primary comparison of every goal space, from the table `comparison`."""
    rows = primary(statistics["comparison"])
    level = level_of(results)
    told: list[str] = []
    untold = [] if rows else [nothing_compared(results)]
    for row in rows:
        (told if _is_significant(row, level) else untold).append(verdict(row, results, level))
    return Finding(
        told,
        untold,
        method_text(results, statistics["comparison"]),
        [text for name in results.goal_spaces for text in limits(results, statistics, name)],
    )


def primary(comparison: pd.DataFrame) -> list[Any]:
    """Rows of the primary metric, by goal space, largest difference first."""
    rows = comparison[comparison["primary"].astype(bool)]
    spaces = list(dict.fromkeys(rows["goal_space"]))
    return sorted(
        rows.itertuples(index=False),
        key=lambda row: (spaces.index(row.goal_space), -abs(row.difference)),
    )


def level_of(results: Results) -> float:
    """Significance level: 1 minus the confidence of the intervals."""
    return round(1.0 - settings(results).confidence, 12)


def _is_significant(row: Any, level: float) -> bool:
    return bool(row.p_holm < level - TIE)


def verdict(row: Any, results: Results, level: float) -> str:
    """One row of the comparison as a sentence without a full stop."""
    sampler = name_of(Algorithm(row.sampler, row.variant), results)
    baseline = name_of(Algorithm(row.baseline, row.baseline_variant), results)
    prefix = f"{row.goal_space}: " if len(results.goal_spaces) > 1 else ""
    suffix = f"{p_equals(row.p_holm)}, n = {run_counts(row)}"
    if not _is_significant(row, level):
        difference = f"{short(row.difference)}{_interval_text(row.low, row.high)}"
        return (
            f"{prefix}{sampler} and {baseline} are not told apart: {sampler} minus {baseline} is "
            f"{difference}, {suffix}"
        )
    ordered = (sampler, baseline, row.difference, row.low, row.high)
    if row.difference < 0:
        ordered = (baseline, sampler, -row.difference, -row.high, -row.low)
    winner, loser, lead, low, high = ordered
    return f"{prefix}{winner} beats {loser} by {short(lead)}{_interval_text(low, high)}, {suffix}"


def _interval_text(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" ({short(low)} to {short(high)})"


def name_of(algorithm: Algorithm, results: Results) -> str:
    """Name as in the experiment file: `sampler`, or `sampler/variant` if it has several."""
    several = sum(entry.sampler == algorithm.sampler for entry in results.algorithms) > 1
    return f"{algorithm.sampler}/{algorithm.variant}" if several else algorithm.sampler


def run_counts(row: Any) -> str:
    """Runs of both sides of a comparison row; one number if they are equal."""
    return " and ".join(map(str, dict.fromkeys((row.runs, row.baseline_runs))))


def nothing_compared(results: Results) -> str:
    """Why a comparison has no rows."""
    reference = name_of(results.reference, results)
    if len(results.algorithms) == 1:
        return f"{reference} is the only sampler of this experiment: nothing is compared"
    if results.manifests_of(results.reference):
        return f"only {reference} has complete runs: nothing is compared"
    return f"{reference}, which the others are compared with, has no complete run"


def method_text(results: Results, comparison: pd.DataFrame) -> str:
    """What is compared, and how, in one sentence."""
    split = practised_split(results)
    categories = {len(evaluated_categories(results, name, split)) for name in results.goal_spaces}
    kind = settings(results)
    sizes = {family_size(results, comparison, name) for name in results.goal_spaces} - {0}
    corrected = bool(sizes - {1})
    holm = f", p corrected over {number_text(sizes)} comparisons (Holm)" if corrected else ""
    return (
        f"{SCORE_LABELS[PRIMARY_SCORE]}{results.counted_from}, {SPLIT_LABELS[split].lower()}, mean "
        f"of {number_text(categories)} categories; {kind.confidence:.0%} intervals, uncorrected, "
        f"and p by permutation of whole runs{holm}"
    )


def family_size(results: Results, comparison: pd.DataFrame, goal_space: str) -> int:
    """Number of tests in the Holm correction of the primary metric."""
    rows = rows_where(comparison, goal_space=goal_space, score=PRIMARY_SCORE)
    if settings(results).family == "split":
        rows = rows_where(rows, split=practised_split(results))
    return int(rows["p"].notna().sum())


# --- what so few runs cannot show -----------------------------------------------------------------


def limits(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> list[str]:
    """What the runs of a goal space cannot show; empty without a comparison."""
    present = results.algorithms_in(goal_space)
    if results.reference not in present or len(present) < 2:
        return []
    split = practised_split(results)
    runs = {algorithm: run_means(results, algorithm, goal_space, split) for algorithm in present}
    counts = results.seed_counts(goal_space)
    tests = family_size(results, statistics["comparison"], goal_space)
    prefix = f"goal space {goal_space}: " if len(results.goal_spaces) > 1 else ""
    reference = runs.pop(results.reference)
    baselines = list(runs.values())
    sentences = [
        f"{prefix}each sampler has n = {number_text(counts)} runs. "
        f"{smallest_chance(reference, baselines, tests)}",
        detectable(reference, baselines, level_of(results), tests),
    ]
    if min(counts) < CRUDE:
        sentences.append(
            f"intervals of means of fewer than {CRUDE} runs are crude: they cover the true value "
            "less often than their level says"
        )
    return [f"{text[0].upper()}{text[1:]}." for text in sentences]


def smallest_chance(reference: Matrix, baselines: Sequence[Matrix], tests: int) -> str:
    """The smallest p that this many runs allow, alone and after Holm's correction over `tests`.

    reference, baselines: run means of each algorithm, (runs,).
    """
    ones = np.ones(len(reference))
    least = min(permutation_test(ones, np.zeros(len(baseline))).p for baseline in baselines)
    corrected = f", and {chance(min(1.0, least * tests))} after the correction" if tests > 1 else ""
    text = f"The smallest p that the test can give is {chance(least)}{corrected}"
    return text.replace("< ", "below ")


def detectable(reference: Matrix, baselines: Sequence[Matrix], level: float, tests: int) -> str:
    """The smallest significant difference, alone and after the correction."""
    alone = _detectable_text(reference, baselines, level)
    text = f"with the spread of these runs a difference reaches p < {short(level)} {alone}"
    if tests > 1 and alone != NEVER:
        text += f"; after the correction {_detectable_text(reference, baselines, level / tests)}"
    return text


def _detectable_text(reference: Matrix, baselines: Sequence[Matrix], level: float) -> str:
    """The range of smallest significant differences over the pairs."""
    smallest = [smallest_difference(reference, baseline, level) for baseline in baselines]
    detectable = sorted({short(value) for value in smallest if value is not None})
    if not detectable:
        return NEVER
    several = len(detectable) > 1
    span = f"{detectable[0]} to {detectable[-1]}" if several else detectable[0]
    depends = ", depending on the pair" if several else ""
    never = ", and for some pairs at no size: that takes more runs" if None in smallest else ""
    return f"from {span} on{depends}{never}"


def smallest_difference(first: Matrix, second: Matrix, level: float) -> float | None:
    """Smallest difference of means at which the permutation test gives p < `level`.

    Args:
        first, second: run means, (runs,) and (other runs,); only their spread counts.
        level: of the test.

    Returns:
        the difference, rounded up to hundredths; None if even 1 is not enough.
    """

    def is_enough(hundredths: int) -> bool:
        shifted = first - first.mean() + hundredths / 100
        return permutation_test(shifted, second - second.mean()).p < level - TIE

    fewest = 1 + bisect.bisect_left(range(1, 101), True, key=is_enough)
    return fewest / 100 if fewest <= 100 else None


# --- texts ----------------------------------------------------------------------------------------


def terminal(summary: Mapping[str, Any], folder: str, commands: Sequence[str]) -> list[str]:
    """Five lines: the finding, the paths of page and tables, and the next two commands.

    Args:
        summary: the finding, as in the JSON file beside the page.
        folder: results folder of the experiment.
        commands: the two commands, each with its purpose.
    """
    sentences = [join_sentences(summary[key]) for key in ("told", "untold") if summary[key]]
    lines = [*sentences, summary["measured"]][:2]
    paths = f"{folder}/summary.html; tables: {folder}/tables, {folder}/statistics"
    return [*lines, f"summary: {paths}", *(f"next: {command}" for command in commands)]


def join_sentences(sentences: Sequence[str]) -> str:
    """The first few sentences in one line, and how many more there are."""
    more = len(sentences) - SHOWN
    return "; ".join([*sentences[:SHOWN], *([f"and {more} more"] if more > 0 else [])])
