"""What it costs to master a category in episodes of it, and how alive the critic is meanwhile.

For runs of the sampler `scripted`, whose practice is fixed (docs/studies/learner.md): a learner
that practice decides needs as many episodes of a category whatever is practised beside or before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.printing import Table
from analysis.tables.results import Results, rows_where
from magellan.core.columns import CRITIC

MASTERED = 0.9
"""Success that counts as mastery at the first evaluation that has it (docs/studies/learner.md)."""
COLUMNS = (*RUN_COLUMNS, "category", "cost", "length", "practised", "best", "success", *CRITIC)


def costs(results: Results) -> pd.DataFrame:
    """A row for each run and category, on training goals.

    Returns:
        `cost`: episodes of the category until mastery, `length` of the run then, in the budget's
        unit; both NaN if it is never mastered. `practised`: all its episodes. `best`: highest
        success. `success` and the columns of `CRITIC`: at the end.
    """
    rows = [row for run in results.runs for row in _of_run(results, run._asdict())]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_run(results: Results, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    practice = results.table("practice", **run)
    evaluation = results.table("evaluation", **run, split="train")
    for category, rows in evaluation.groupby("category", sort=False):
        mine = rows_where(practice, category=category)
        last, mastered = rows.iloc[-1], rows[rows["success"] >= MASTERED]
        reached = mastered.iloc[0] if len(mastered) else None
        yield {
            **run,
            "category": category,
            "cost": np.nan if reached is None else episodes_until(mine, reached["episode"]),
            "length": np.nan if reached is None else reached[results.at],
            "practised": int(mine["n"].sum()),
            "best": rows["success"].max(),
            **last[["success", *CRITIC]],
        }


def episodes_until(practice: pd.DataFrame, episode: float) -> float:
    """Episodes of a category until this one of all; within a window they are taken as spread.

    practice: rows of the table for this category, in order.
    """
    ends = np.concatenate([[0], practice["episode"]])
    return float(np.interp(episode, ends, np.concatenate([[0], practice["n"].cumsum()])))


def table(frame: pd.DataFrame) -> Table:
    """A row for each variant and category: cost of each seed, or how far it came."""
    rows = []
    for (variant, category), mine in frame.groupby(["variant", "category"], sort=False):
        if not mine["practised"].any():
            continue
        dormant, spread = (" ".join(f"{x:.2f}" for x in mine[key]) for key in ("dormant", "spread"))
        cost = " ".join(_cost(row) for row in mine.itertuples())
        rows.append([variant, category, cost, str(len(mine)), dormant, spread])
    header = ("variant", "category", "episodes until mastered", "n", "dormant at the end", "spread")
    return Table("Cost of mastery, by seed", header, rows)


def _cost(row: Any) -> str:
    if row.cost == row.cost:
        return f"{row.cost:,.0f}"
    return f"never in {row.practised:,} ({row.best:.2f})"
