"""Whether the two halves of an experiment's seeds say the same.

What one half of the runs shows and the other contradicts is luck. Each half is an experiment of its
own, with its own intervals and tests; only what all of the runs show and both halves repeat is
worth a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.statistics.primary import FAMILY, PRIMARY_SCORE, comparison
from analysis.tables.grid import Algorithm
from analysis.tables.labels import algorithm_label
from analysis.tables.printing import Table, between
from analysis.tables.results import Results
from magellan.core.errors import InputError

SIGNIFICANT = 0.05
FEWEST = 2
PAIR = [*FAMILY, "baseline", "baseline_variant"]
OF_A_HALF = (("difference", "+.3f"), ("p", ".4f"))
HEADER = (
    *("compared with", "all", "interval", "p, Holm"),
    *("first half", "p", "second half", "p", "both halves agree", "claimed"),
)


def of_seeds(results: Results, seeds: Sequence[int]) -> Results:
    """The runs with these seeds, as an experiment of its own."""

    def mine(entries: Sequence[dict]) -> list[dict]:
        return [entry for entry in entries if entry["seed"] in seeds]

    manifest = {
        **results.manifest,
        "experiment": {**results.experiment, "seeds": list(seeds)},
        **{key: mine(results.manifest[key]) for key in ("plan", "runs", "missing")},
    }
    tables = {name: frame[frame["seed"].isin(seeds)] for name, frame in results.tables.items()}
    return Results(tables, manifest)


def halves_of(results: Results) -> tuple[list[int], list[int]]:
    """The first and the second half of the seeds, in the order of the configuration.

    Raises:
        InputError: fewer than two seeds for each half.
    """
    seeds = list(results.experiment["seeds"])
    middle = len(seeds) // 2
    if middle < FEWEST:
        raise InputError(f"halves: the experiment has {len(seeds)} seeds; allowed: 4 or more")
    return seeds[:middle], seeds[middle:]


def compared_halves(results: Results) -> pd.DataFrame:
    """The comparison of all runs, with the difference and p of each half beside it.

    Adds to `analysis.statistics.primary.comparison`: `difference_1`, `p_1`, `difference_2`, `p_2`,
    `repeated` (both halves have the sign of the whole) and `claimed` (repeated, and p after Holm
    below .05).
    """
    whole = comparison(results)
    for number, seeds in enumerate(halves_of(results), start=1):
        half = comparison(of_seeds(results, seeds))[[*PAIR, "difference", "p"]]
        names = {name: f"{name}_{number}" for name in ("difference", "p")}
        whole = whole.merge(half.rename(columns=names), on=PAIR, how="left", validate="1:1")
    signs = whole[["difference", "difference_1", "difference_2"]].apply(lambda x: x > 0)
    flat = (whole[["difference", "difference_1", "difference_2"]] == 0.0).any(axis=1)
    alike = signs.eq(signs["difference"], axis=0).all(axis=1)
    there = whole[["difference_1", "difference_2"]].notna().all(axis=1)
    whole["repeated"] = alike & ~flat & there
    whole["claimed"] = whole["repeated"] & (whole["p_holm"] < SIGNIFICANT)
    return whole


def tables(results: Results) -> Iterator[Table]:
    """A table for each goal space and split, of the primary score."""
    first, second = halves_of(results)
    frame = compared_halves(results)
    frame = frame[frame["score"] == PRIMARY_SCORE]
    if frame.empty:
        raise InputError("halves: nothing to compare; allowed: tables of two samplers or variants")
    reference = algorithm_label(results.reference, results.algorithms)
    for (goal_space, split), rows in frame.groupby(["goal_space", "split"], sort=False):
        title = (
            f"{reference} minus each other (permutation of whole runs), goal space {goal_space}, "
            f"split {split}: all seeds, seeds {_range(first)} and seeds {_range(second)}"
        )
        yield Table(title, HEADER, [_cells(results, row) for _, row in rows.iterrows()])


def _cells(results: Results, row: pd.Series) -> list[str]:
    baseline = Algorithm(row["baseline"], row["baseline_variant"])
    return [
        algorithm_label(baseline, results.algorithms),
        f"{row['difference']:+.3f}",
        between(row["low"], row["high"]),
        f"{row['p_holm']:.4f}",
        *(_number(row[f"{name}_{half}"], form) for half in (1, 2) for name, form in OF_A_HALF),
        "yes" if row["repeated"] else "no",
        "yes" if row["claimed"] else "no",
    ]


def _number(value: float, form: str) -> str:
    return "n/a" if pd.isna(value) else f"{value:{form}}"


def _range(seeds: Sequence[int]) -> str:
    listed = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if listed else ", ".join(map(str, seeds))
