"""What an experiment has found, in sentences: the comparison that was fixed before the runs.

The winner is the subject of its sentence. Pairs that are not told apart are said to be so, and what
so few runs cannot show stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.intervals import TIE, Matrix, permutation_test
from analysis.statistics.matrices import evaluated_categories, settings
from analysis.statistics.primary import PRIMARY_SCORE, run_means
from analysis.tables.grid import (
    UNIT_LABELS,
    UNIT_WORDS,
    Algorithm,
    Run,
    number_text,
    reference_algorithm,
    seeds_by_algorithm,
    unit_of_experiment,
)
from analysis.tables.labels import (
    SCORE_LABELS,
    SPLIT_LABELS,
    Algorithms,
    Names,
    figure_label,
    sampler_label,
)
from analysis.tables.phases import practised_split
from analysis.tables.results import Results, rows_where

NEVER = "at no size, however large: that takes more runs"
CRUDE = 8
"""Runs below which intervals are crude (docs/statistics.md)."""
SHOWN = 3
"""Sentences of a line in the terminal."""


class Finding(NamedTuple):
    """Sentences about an experiment.

    Attributes:
        told: pairs that are told apart, the winner first.
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
    told = [_is_told(row, level) for row in rows]
    sentences = [verdict(row, results, level) for row in rows]
    return Finding(
        [text for text, is_told in zip(sentences, told, strict=True) if is_told],
        [text for text, is_told in zip(sentences, told, strict=True) if not is_told]
        or ([] if rows else [nothing_compared(results)]),
        measured(results, statistics["comparison"]),
        [text for name in results.goal_spaces for text in limits(results, statistics, name)],
    )


def primary(comparison: pd.DataFrame) -> list[Any]:
    """Rows of the primary metric: a goal space after the other, the largest difference first."""
    chosen = comparison[comparison["primary"].astype(bool)] if len(comparison) else comparison
    spaces = list(dict.fromkeys(chosen["goal_space"]))
    return sorted(
        chosen.itertuples(index=False),
        key=lambda row: (spaces.index(row.goal_space), -abs(row.difference)),
    )


def level_of(results: Results) -> float:
    """What p has to be below: 1 minus the level of the intervals."""
    return round(1.0 - settings(results).confidence, 12)


def _is_told(row: Any, level: float) -> bool:
    return bool(row.p_holm < level - TIE)


def verdict(row: Any, results: Results, level: float) -> str:
    """One row of the comparison as a sentence without a full stop."""
    ours = name_of(Algorithm(row.sampler, row.variant), results)
    theirs = name_of(Algorithm(row.baseline, row.baseline_variant), results)
    where = f"{row.goal_space}: " if len(results.goal_spaces) > 1 else ""
    p = chance(row.p_holm)
    behind = f"p {p if p.startswith('<') else f'= {p}'}, n = {sizes(row)}"
    if not _is_told(row, level):
        lead = f"{short(row.difference)}{_between(row.low, row.high)}"
        return (
            f"{where}{ours} and {theirs} are not told apart: {ours} minus {theirs} is {lead}, "
            f"{behind}"
        )
    ahead = (ours, theirs, row.difference, row.low, row.high)
    if row.difference < 0:
        ahead = (theirs, ours, -row.difference, -row.high, -row.low)
    winner, other, lead, low, high = ahead
    return f"{where}{winner} beats {other} by {short(lead)}{_between(low, high)}, {behind}"


def _between(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" ({short(low)} to {short(high)})"


def name_of(algorithm: Algorithm, results: Results) -> str:
    """As the experiment file writes it: `sampler`, or `sampler/variant` where it has several."""
    several = sum(each.sampler == algorithm.sampler for each in results.algorithms) > 1
    return f"{algorithm.sampler}/{algorithm.variant}" if several else algorithm.sampler


def short(value: float, digits: int = 2) -> str:
    """A number of at most 1 in size without its leading zero: `.23`, `-.05`, `1.00`."""
    text = f"{value:.{digits}f}"
    text = text.replace("-0.", "-.", 1) if text.startswith("-") else text.removeprefix("0")
    return text.removeprefix("-") if float(text) == 0.0 else text


def chance(p: float) -> str:
    """A p value: `.048`, `< .001`."""
    return "< .001" if p < 0.001 else short(p, 3)


def sizes(row: Any) -> str:
    """Runs of both sides of a row of the comparison, as one number where they have the same."""
    return " and ".join(map(str, dict.fromkeys((row.runs, row.baseline_runs))))


def nothing_compared(results: Results) -> str:
    """Why a comparison has no row."""
    reference = name_of(results.reference, results)
    if len(results.algorithms) == 1:
        return f"{reference} is the only sampler of this experiment: nothing is compared"
    return f"{reference}, which the others are compared with, has no complete run"


def measured(results: Results, comparison: pd.DataFrame) -> str:
    """What is compared, and how: in one sentence."""
    split = practised_split(results)
    categories = {len(evaluated_categories(results, name, split)) for name in results.goal_spaces}
    kind = settings(results)
    over = family_size(results, comparison, results.goal_spaces[0])
    holm = f", corrected over {over} comparisons (Holm)" if over > 1 else ""
    return (
        f"{SCORE_LABELS[PRIMARY_SCORE]}{results.counted_from}, {SPLIT_LABELS[split].lower()}, mean "
        f"of {number_text(categories)} categories; {kind.confidence:.0%} intervals; p by "
        f"permutation of whole runs{holm}"
    )


def family_size(results: Results, comparison: pd.DataFrame, goal_space: str) -> int:
    """Tests that Holm's correction of the primary metric goes over."""
    rows = rows_where(comparison, goal_space=goal_space, score=PRIMARY_SCORE)
    if settings(results).family == "split":
        rows = rows_where(rows, split=practised_split(results))
    return int(rows["p"].notna().sum())


# --- what so few runs cannot show -----------------------------------------------------------------


def limits(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> list[str]:
    """What the runs of a goal space cannot show; empty where nothing is compared."""
    present = results.algorithms_in(goal_space)
    others = [each for each in present if each != results.reference]
    if results.reference not in present or not others:
        return []
    runs = {
        each: run_means(results, each, goal_space, practised_split(results)) for each in present
    }
    counts = results.seed_counts(goal_space)
    over = family_size(results, statistics["comparison"], goal_space)
    where = f"goal space {goal_space}: " if len(results.goal_spaces) > 1 else ""
    said = [
        f"{where}each sampler has n = {number_text(counts)} runs. {smallest_chance(runs, over)}"
    ]
    ours = runs.pop(results.reference)
    said.append(reach(ours, list(runs.values()), level_of(results), over))
    if min(counts) < CRUDE:
        said.append(
            f"intervals of fewer than {CRUDE} runs are crude: they hold the true value less often "
            "than they say"
        )
    return [f"{text[0].upper()}{text[1:]}." for text in said]


def smallest_chance(runs: Mapping[Algorithm, Matrix], over: int) -> str:
    """The smallest p that permutations of so many runs can give, alone and after Holm's correction.

    runs: run means of each algorithm, (runs,).
    """
    fewest = min(map(len, runs.values()))
    least = permutation_test(np.ones(fewest), np.zeros(fewest)).p
    corrected = f", and {chance(min(1.0, least * over))} after the correction" if over > 1 else ""
    text = f"The smallest p that the test can give is {chance(least)}{corrected}"
    return text.replace("< ", "below ")


def reach(ours: Matrix, others: Sequence[Matrix], level: float, over: int) -> str:
    """From which difference on such runs would be told apart, alone and after the correction."""
    alone = _differences(ours, others, level)
    text = f"with the spread of these runs a difference reaches p < {short(level)} {alone}"
    if over > 1 and alone != NEVER:
        text += f"; after the correction {_differences(ours, others, level / over)}"
    return text


def _differences(ours: Matrix, others: Sequence[Matrix], level: float) -> str:
    """The smallest differences that are told apart, from the easiest pair to the hardest."""
    found = [smallest_difference(ours, theirs, level) for theirs in others]
    known = sorted({short(value) for value in found if value is not None})
    if not known:
        return NEVER
    span = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
    ending = ", depending on the pair" if len(known) > 1 else ""
    lost = ", and for some pairs at no size: that takes more runs" if None in found else ""
    return f"from {span} on{ending}{lost}"


def smallest_difference(ours: Matrix, theirs: Matrix, level: float) -> float | None:
    """Smallest difference of means at which the permutation test gives p < `level`.

    Args:
        ours, theirs: run means, (runs,) and (other runs,); only their spread counts.
        level: of the test.

    Returns:
        the difference in hundredths, rounded up; None where none of up to 1 is enough.
    """

    def is_enough(hundredths: int) -> bool:
        shifted = ours - ours.mean() + hundredths / 100
        return permutation_test(shifted, theirs - theirs.mean()).p < level - TIE

    low, high = 0, 100
    if not is_enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high / 100


# --- texts ----------------------------------------------------------------------------------------


def terminal(found: Mapping[str, Any], folder: str, commands: Sequence[str]) -> list[str]:
    """Five lines: the finding, where page and tables are, and the next two commands.

    Args:
        found: the finding, as the JSON file beside the page has it.
        folder: results folder of the experiment.
        commands: the two commands, each with what it is for.
    """
    both = [listed(found[key]) for key in ("told", "untold") if found[key]]
    lines = [*both, found["measured"]][:2]
    places = f"{folder}/summary.html; tables: {folder}/tables, {folder}/statistics"
    return [*lines, f"summary: {places}", *(f"next: {command}" for command in commands)]


def listed(sentences: Sequence[str]) -> str:
    """The first few sentences in one line, and how many more there are."""
    more = len(sentences) - SHOWN
    return "; ".join([*sentences[:SHOWN], *([f"and {more} more"] if more > 0 else [])])


# --- What the captions of the report say about the tables: numbers of seeds, names, intervals ---


def numbers(runs: Iterable[Run], missing: int, experiment: Mapping[str, Any]) -> dict[str, Any]:
    """How much tables rest on, as plain values for the captions.

    Args:
        runs: those that are there.
        missing: how many of the grid are not.
        experiment: configuration of the grid.

    Returns:
        complete and declared runs; labels of the reference and of its sampler, and of what training
        is counted in, on the x axis (`across`) and in a sentence (`unit`); for each goal space
        `n` seeds in words, the fewest and the most, and `reference_n`, that of the reference's
        sampler.
    """
    listed = list(runs)
    reference, unit = reference_algorithm(experiment), unit_of_experiment(experiment)
    names = Names(variants=experiment["analysis"].get("labels") or {})
    algorithms = Algorithms(dict.fromkeys(run.algorithm for run in listed), names)
    return {
        "complete": len(listed),
        "declared": len(listed) + missing,
        "reference": _plain(figure_label(reference, algorithms)),
        "across": UNIT_LABELS[unit],
        "unit": UNIT_WORDS[unit],
        "reference_sampler": _plain(sampler_label(reference.sampler)),
        "goal_spaces": {
            name: _of_goal_space(seeds, reference)
            for name, seeds in seeds_by_algorithm(listed).items()
        },
    }


def _plain(label: str) -> str:
    """A name in reStructuredText: `small_` is no link."""
    return re.sub(r"([\\*`|_])", r"\\\1", label)


def as_plain_text(text: str) -> str:
    """Text whose paragraphs look in a caption as they are written: no mark in it has a meaning."""
    lines = [re.sub(r"([^\w\s]|_)", r"\\\1", line.strip()) for line in text.splitlines()]
    return "\n".join(lines)


def _of_goal_space(seeds: Mapping[Algorithm, list[int]], reference: Algorithm) -> dict[str, Any]:
    counts = {algorithm: len(listed) for algorithm, listed in seeds.items()}
    own = [count for algorithm, count in counts.items() if algorithm.sampler == reference.sampler]
    return {
        "n": number_text(counts.values()),
        "fewest": min(counts.values()),
        "most": max(counts.values()),
        "reference_n": number_text(own) if own else "0",
    }


def facts(experiment: Mapping[str, Any]) -> dict[str, str]:
    """What the captions say about intervals."""
    settings = experiment["analysis"]
    return {
        "confidence": f"{settings['confidence']:.0%}",
        "resamples": f"{settings['bootstrap_repetitions']:,}",
    }
