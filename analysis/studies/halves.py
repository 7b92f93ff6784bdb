"""Replication within an experiment: do both halves of its seeds agree?

Each half is treated as an experiment of its own. A difference is claimed only if all runs show it
and both halves agree in sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.statistics.primary import FAMILY, PRIMARY_SCORE, comparison
from analysis.tables.grid import Algorithm
from analysis.tables.labels import algorithm_label
from analysis.tables.printing import Table, interval_cell
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


def select_seeds(results: Results, seeds: Sequence[int]) -> Results:
    """The runs with these seeds, as an experiment of its own."""
    lists = {
        key: [entry for entry in results.manifest[key] if entry["seed"] in seeds]
        for key in ("plan", "runs", "missing")
    }
    experiment = {**results.experiment, "seeds": list(seeds)}
    manifest = {**results.manifest, "experiment": experiment, **lists}
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


def compare_halves(results: Results) -> pd.DataFrame:
    """The comparison of all runs, with the difference and p of each half.

    Adds to `analysis.statistics.primary.comparison`: `difference_1`, `p_1`, `difference_2`, `p_2`,
    `repeated` (both halves have the sign of the whole) and `claimed` (repeated, and Holm-corrected
    p below .05).
    """
    whole = comparison(results)
    for number, seeds in enumerate(halves_of(results), start=1):
        half = comparison(select_seeds(results, seeds))[[*PAIR, "difference", "p"]]
        names = {name: f"{name}_{number}" for name in ("difference", "p")}
        whole = whole.merge(half.rename(columns=names), on=PAIR, how="left", validate="1:1")
    differences = whole[["difference", "difference_1", "difference_2"]]
    whole["repeated"] = (differences > 0).all(axis=1) | (differences < 0).all(axis=1)
    whole["claimed"] = whole["repeated"] & (whole["p_holm"] < SIGNIFICANT)
    return whole


def tables(results: Results) -> Iterator[Table]:
    """A table for each goal space and split, of the primary score."""
    first, second = halves_of(results)
    frame = compare_halves(results)
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
        interval_cell(row["low"], row["high"]),
        f"{row['p_holm']:.4f}",
        *(_number(row[f"{name}_{half}"], form) for half in (1, 2) for name, form in OF_A_HALF),
        "yes" if row["repeated"] else "no",
        "yes" if row["claimed"] else "no",
    ]


def _number(value: float, form: str) -> str:
    return "n/a" if pd.isna(value) else f"{value:{form}}"


def _range(seeds: Sequence[int]) -> str:
    consecutive = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else ", ".join(map(str, seeds))
