"""The main numbers as a table to read: success per sampler and category, with its range."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping

import pandas as pd

from analysis.figures.style import CATEGORY_LABELS, SCORE_LABELS, SPLIT_LABELS, sampler_style
from analysis.summaries import SCORES
from analysis.tables import SPLITS, Results
from magellan.littlezoo.goals import CATEGORIES


def success_table(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    split: str,
    score: str = "final",
) -> pd.DataFrame:
    """One row per sampler, one column per category: `mean (lowest-highest)` over seeds."""
    scores = statistics["scores"]
    scores = scores[(scores["goal_space"] == goal_space) & (scores["split"] == split)]
    present = set(scores["category"])
    categories = [category for category in CATEGORIES if category in present]
    rows = []
    for sampler in results.samplers:
        mine = scores[scores["sampler"] == sampler].groupby("category")[score]
        row = {"Sampler": sampler_style(sampler, results.samplers).label}
        for category in categories:
            values = mine.get_group(category)
            row[CATEGORY_LABELS[category]] = _cell(values)
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(values: pd.Series) -> str:
    if len(values) == 1:
        return f"{values.iloc[0]:.2f}"
    return f"{values.mean():.2f} ({values.min():.2f}-{values.max():.2f})"


def heading(results: Results, goal_space: str, split: str, score: str) -> str:
    """What a table shows, in one line."""
    seeds = len(results.seeds)
    what = f"{SCORE_LABELS[score]}, {SPLIT_LABELS[split].lower()}, goal space {goal_space}"
    if seeds == 1:
        return f"{what}: a single seed"
    return f"{what}: mean over n = {seeds} seeds (lowest-highest seed)"


def cost_table(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> pd.DataFrame:
    """What a run took: one row per sampler, means over seeds."""
    cost = statistics["cost"]
    cost = cost[cost["goal_space"] == goal_space]
    rows = []
    for sampler in results.samplers:
        mine = cost[cost["sampler"] == sampler]
        rows.append(
            {
                "Sampler": sampler_style(sampler, results.samplers).label,
                "Episodes": _number(mine["episodes"].mean(), 0),
                "Updates": _number(mine["updates"].mean(), 0),
                "Minutes": _number(mine["wall_seconds"].mean() / 60, 1),
                "Peak memory, MB": _number(mine["peak_memory_mb"].mean(), 0),
            }
        )
    return pd.DataFrame(rows)


def _number(value: float, digits: int) -> str:
    return "n/a" if pd.isna(value) else f"{value:,.{digits}f}"


def _tables(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Iterator[tuple[str, pd.DataFrame]]:
    """All tables of a goal space, each with its heading."""
    for score in SCORES:
        for split in SPLITS:
            table = success_table(results, statistics, goal_space, split, score)
            yield heading(results, goal_space, split, score), table
    cost = cost_table(results, statistics, goal_space)
    yield f"Cost of a run, goal space {goal_space}: mean over seeds", cost


def to_markdown(results: Results, statistics: Mapping[str, pd.DataFrame]) -> str:
    """All tables in Markdown."""
    parts = []
    for goal_space in results.goal_spaces:
        for title, table in _tables(results, statistics, goal_space):
            lines = [f"**{title}**", "", "| " + " | ".join(table.columns) + " |"]
            lines.append("|" + "---|" * len(table.columns))
            lines += ["| " + " | ".join(row) + " |" for row in table.to_numpy()]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Success in numbers</title>
<style>
body {{ font-family: sans-serif; margin: 1.5em; color: #222; background: #fff; }}
table {{ border-collapse: collapse; margin: 0.6em 0 1.8em; }}
th, td {{ padding: 0.35em 0.9em; border-bottom: 1px solid #ddd; text-align: left; }}
caption {{ text-align: left; font-weight: bold; padding-bottom: 0.4em; }}
</style></head><body>
{body}
</body></html>
"""


def to_html(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> str:
    """The tables of one goal space as a page of its own, for the report."""
    parts = []
    for title, table in _tables(results, statistics, goal_space):
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
        body = "\n".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in table.to_numpy()
        )
        caption = f"<caption>{html.escape(title)}</caption>"
        parts.append(f"<table>{caption}\n<tr>{head}</tr>\n{body}\n</table>")
    return PAGE.format(body="\n".join(parts))
