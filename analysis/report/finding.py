"""An experiment's finding in sentences: its pre-registered comparison and the limits of its runs.

The winner is the subject of its sentence; pairs that are not told apart have one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.intervals import TIE, permutation_test
from analysis.statistics.matrices import evaluated_categories, settings
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.tables.grid import SCORE_LABELS, SPLIT_LABELS, Algorithm, number_text
from analysis.tables.phases import practised_split
from analysis.tables.printing import chance, p_equals, short
from analysis.tables.results import Results, rows_where

CRUDE = 8
"""Number of runs below which intervals are crude (docs/statistics.md)."""
SHOWN = 3
"""Sentences per line in the terminal."""


class Finding(NamedTuple):
    """Sentences about an experiment."""

    told: list[str]  # pairs that are told apart, winner first
    untold: list[str]  # pairs that are not, or why there is no comparison
    measured: str  # what is compared, and how
    limits: list[str]  # what so few runs cannot show


def finding(results: Results, statistics: Mapping[str, pd.DataFrame]) -> Finding:
    """The primary comparison of every goal space, from the table `comparison`."""
    rows = primary(statistics["comparison"])
    level = round(1.0 - settings(results).confidence, 12)
    told, untold = (
        [verdict(row, results, level) for row in rows if _is_significant(row, level) == significant]
        for significant in (True, False)
    )
    untold = untold if rows else [nothing_compared(results)]
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


def _is_significant(row: Any, level: float) -> bool:
    return bool(row.p_holm < level - TIE)


def verdict(row: Any, results: Results, level: float) -> str:
    """One row of the comparison as a sentence without a full stop."""
    sampler = name_of(Algorithm(row.sampler, row.variant), results)
    baseline = name_of(Algorithm(row.baseline, row.baseline_variant), results)
    prefix = f"{row.goal_space}: " if len(results.goal_spaces) > 1 else ""
    counts = " and ".join(map(str, dict.fromkeys((row.runs, row.baseline_runs))))
    suffix = f"{p_equals(row.p_holm)}, n = {counts}"
    if not _is_significant(row, level):
        difference = f"{short(row.difference)}{_interval_text(row.low, row.high)}"
        return (
            f"{prefix}{sampler} and {baseline} are not told apart: {sampler} minus {baseline} is "
            f"{difference}, {suffix}"
        )
    winner, loser, lead, low, high = sampler, baseline, row.difference, row.low, row.high
    if row.difference < 0:
        winner, loser, lead, low, high = baseline, sampler, -lead, -high, -low
    return f"{prefix}{winner} beats {loser} by {short(lead)}{_interval_text(low, high)}, {suffix}"


def _interval_text(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" ({short(low)} to {short(high)})"


def name_of(algorithm: Algorithm, results: Results) -> str:
    """Name as in the experiment file: `sampler`, or `sampler/variant` if it has several."""
    several = sum(entry.sampler == algorithm.sampler for entry in results.algorithms) > 1
    return f"{algorithm.sampler}/{algorithm.variant}" if several else algorithm.sampler


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
        f"of {number_text(categories)} categories; {100 * kind.confidence:g}% intervals, "
        f"uncorrected, and p by permutation of whole runs{holm}"
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
    sizes = {name: len(results.seeds_of(name, goal_space)) for name in present}
    tests = family_size(results, statistics["comparison"], goal_space)
    prefix = f"goal space {goal_space}: " if len(results.goal_spaces) > 1 else ""
    reference, baselines = sizes.pop(results.reference), list(sizes.values())
    counts = [reference, *baselines]
    sentences = [
        f"{prefix}each sampler has n = {number_text(counts)} runs. "
        f"{smallest_chance(reference, baselines, tests)}"
    ]
    if min(counts) < CRUDE:
        sentences.append(
            f"intervals of means of fewer than {CRUDE} runs are crude: they cover the true value "
            "less often than their level says"
        )
    return [f"{text[0].upper()}{text[1:]}." for text in sentences]


def smallest_chance(reference: int, baselines: Sequence[int], tests: int) -> str:
    """The smallest p that this many runs allow, alone and after Holm's correction over `tests`."""
    ones = np.ones(reference)
    least = min(permutation_test(ones, np.zeros(number)).p for number in baselines)
    corrected = f", and {chance(min(1.0, least * tests))} after the correction" if tests > 1 else ""
    text = f"The smallest p that the test can give is {chance(least)}{corrected}"
    return text.replace("< ", "below ")


# --- texts ----------------------------------------------------------------------------------------


def terminal(summary: Mapping[str, Any], folder: str, commands: Sequence[str]) -> list[str]:
    """Five lines: the finding, the paths of page and tables, and the next two commands.

    summary: the finding, as in the JSON file beside the page.
    """
    lines = []
    for texts in filter(None, (summary["told"], summary["untold"])):
        more = len(texts) - SHOWN
        lines.append("; ".join([*texts[:SHOWN], *[f"and {more} more"] * (more > 0)]))
    lines = [*lines, summary["measured"]][:2]
    paths = f"{folder}/summary.html; tables: {folder}/tables, {folder}/statistics"
    return [*lines, f"summary: {paths}", *(f"next: {command}" for command in commands)]
