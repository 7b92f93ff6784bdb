"""Episodes of a category that it takes to master it, and the state of the critic.

For runs of the sampler `scripted`, whose practice is fixed (docs/studies/learner.md): if practice
alone decides, the cost of a category does not depend on what else is practised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.practice_shares import practised_until
from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.printing import Table
from analysis.tables.results import Results
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
    evaluation = results.table("evaluation", sampler=SAMPLER, split="train")
    if evaluation.empty:
        raise InputError(f"cost: no run has the sampler {SAMPLER}; allowed: tables with such runs")
    keys, costs = [*RUN_COLUMNS, "category"], []
    for values, rows in evaluation.groupby(keys, sort=False):
        where = dict(zip(keys, values, strict=True))
        practice = results.table("practice", **where)
        row = {**where, "cost": np.nan, "length": np.nan, "practised": int(practice["n"].sum())}
        for _, first in rows[rows["success"] >= MASTERED].head(1).iterrows():
            windows = practice.set_index("episode")[["n"]]
            row["cost"] = practised_until(windows, first["episode"]).item()
            row["length"] = first[results.unit_column]
        end = rows.iloc[-1][["success", *CRITIC]]
        costs.append({**row, "best": rows["success"].max(), **end})
    return pd.DataFrame(costs)


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
