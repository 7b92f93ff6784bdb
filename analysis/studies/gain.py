"""Gain over training: success at the last evaluation minus success at the first.

For experiments that do not compare samplers. Each run is a pair: the same goals, before and after
training. Of runs with several phases, the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.intervals import DIFFERENCE, EQUAL, Matrix, mean_estimate
from analysis.statistics.matrices import (
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    success_curves,
)
from analysis.tables.grid import Algorithm
from analysis.tables.labels import algorithm_label
from analysis.tables.phases import last_phase
from analysis.tables.printing import Table, interval_cell
from analysis.tables.results import Results

MEAN = "mean"


def compute(results: Results) -> pd.DataFrame:
    """A row for each goal space, split, algorithm and category, and one for the categories' mean.

    `start` and `end` are mean success over runs, 0 to 1; `gain` is end minus start, -1 to 1; `low`
    and `high` are its studentised bootstrap interval over whole runs (NaN for a single run), with
    the method in `interval`. No rows for a split without evaluated categories.
    """
    results = last_phase(results)
    bootstrap = bootstrap_of(results)
    frames = []
    for goal_space, split, algorithm in algorithms_of(results):
        names = [*evaluated_categories(results, goal_space, split), MEAN]
        if names == [MEAN]:
            continue
        curves = success_curves(results, algorithm, goal_space, split)
        start, end = _with_mean(curves[..., 0]), _with_mean(curves[..., -1])
        gain = mean_estimate(end - start, bootstrap, DIFFERENCE)
        where = {"goal_space": goal_space, "split": split, **algorithm._asdict()}
        means = {"start": start.mean(axis=0), "end": end.mean(axis=0)}
        columns = {**where, "category": names, **means, **vars(gain), "runs": len(end)}
        frames.append(pd.DataFrame(columns).rename(columns={"value": "gain", "method": "interval"}))
    return pd.concat(frames, ignore_index=True)


def _with_mean(values: Matrix) -> Matrix:
    return np.column_stack([values, values.mean(axis=1)])


def tables(results: Results) -> Iterator[Table]:
    """A table for each goal space and split."""
    confidence = bootstrap_of(results).confidence
    frame = compute(results)
    header = ["sampler", "category", "start", "end", "gain", f"{confidence:.0%} interval", "n"]
    for (goal_space, split), rows in frame.groupby(["goal_space", "split"], sort=False):
        yield Table(
            f"Success at the last evaluation minus at the first, goal space {goal_space}, "
            f"split {split}",
            header,
            [_row(results, row) for row in rows.to_dict("records")],
        )


def _row(results: Results, row: dict[str, Any]) -> list[str]:
    label = algorithm_label(Algorithm(row["sampler"], row["variant"]), results.algorithms)
    ends = EQUAL if row["interval"] == EQUAL else interval_cell(row["low"], row["high"])
    numbers = [f"{row['start']:.3f}", f"{row['end']:.3f}", f"{row['gain']:+.3f}"]
    return [label, row["category"], *numbers, ends, str(row["runs"])]
