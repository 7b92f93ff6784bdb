"""Episodes of a category that it takes to master it, and the state of the critic.

For runs of the sampler `scripted`, whose practice is fixed (docs/studies/learner.md): if practice
alone decides, the cost of a category does not depend on what else is practised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.printing import Table
from analysis.tables.results import Results, rows_where
from magellan.core.columns import CRITIC
from magellan.core.errors import InputError

SAMPLER = "scripted"
MASTERED = 0.9
"""Success that counts as mastery, at a single evaluation (docs/studies/learner.md)."""


def costs(results: Results) -> pd.DataFrame:
    """A row for each run of `scripted` and category, on training goals.

    Returns:
        `cost`: episodes of the category until mastery, `length`: training length then, in the
        budget's unit; both NaN without mastery. `practised`: all its episodes. `best`: highest
        success. `success` and the columns of `CRITIC`: at the end.

    Raises:
        InputError: no run has this sampler.
    """
    runs = [run._asdict() for run in results.runs if run.sampler == SAMPLER]
    if not runs:
        raise InputError(f"cost: no run has the sampler {SAMPLER}; allowed: tables with such runs")
    return pd.DataFrame(row for run in runs for row in _run_costs(results, run))


def _run_costs(results: Results, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    practice = results.table("practice", **run)
    evaluation = results.table("evaluation", **run, split="train")
    for category, rows in evaluation.groupby("category", sort=False):
        episodes = rows_where(practice, category=category)
        last, mastered = rows.iloc[-1], rows[rows["success"] >= MASTERED]
        first = mastered.iloc[0] if len(mastered) else None
        yield {
            **run,
            "category": category,
            "cost": np.nan if first is None else episodes_until(episodes, first["episode"]),
            "length": np.nan if first is None else first[results.unit_column],
            "practised": int(episodes["n"].sum()),
            "best": rows["success"].max(),
            **last[["success", *CRITIC]],
        }


def episodes_until(practice: pd.DataFrame, episode: float) -> float:
    """Episodes of a category until this training episode, interpolated within windows.

    practice: rows of the table for this category, in order.
    """
    ends = np.concatenate([[0], practice["episode"]])
    return float(np.interp(episode, ends, np.concatenate([[0], practice["n"].cumsum()])))


def table(frame: pd.DataFrame) -> Table:
    """A row for each variant and category: cost of each seed, or its best success."""
    rows = []
    for (variant, category), runs in frame.groupby(["variant", "category"], sort=False):
        if not runs["practised"].any():
            continue
        dormant, spread = (" ".join(f"{x:.2f}" for x in runs[key]) for key in ("dormant", "spread"))
        cost = " ".join(_cost(run) for run in runs.itertuples())
        rows.append([variant, category, cost, str(len(runs)), dormant, spread])
    header = ("variant", "category", "episodes until mastered", "n", "dormant at the end", "spread")
    return Table("Cost of mastery, by seed", header, rows)


def _cost(run: Any) -> str:
    if np.isnan(run.cost):
        return f"never in {run.practised:,} ({run.best:.2f})"
    return f"{run.cost:,.0f}"
