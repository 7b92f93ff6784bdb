"""The main numbers as tables to read: success per algorithm and category, with its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from analysis import pages
from analysis.coverage import sentence
from analysis.figures.style import CATEGORY_LABELS, SCORE_LABELS, SPLIT_LABELS
from analysis.grid import number_text, run_names, run_of
from analysis.labels import algorithm_label
from analysis.results import SPLITS, Results, rows_where
from analysis.summaries import SCORES
from magellan.littlezoo.goals import CATEGORIES

ESTIMATING = "Episodes for estimating"


def success_table(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    split: str,
    score: str = "final",
) -> pd.DataFrame:
    """One row per algorithm, one column per category: `mean (lowest-highest)` over seeds.

    Where algorithms have different numbers of seeds a column `n` says how many.
    """
    scores = rows_where(statistics["scores"], goal_space=goal_space, split=split)
    present = set(scores["category"])
    categories = [category for category in CATEGORIES if category in present]
    uneven = len(set(results.seed_counts(goal_space))) > 1
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        mine = rows_where(scores, **algorithm._asdict()).groupby("category")[score]
        row = {"Sampler": algorithm_label(algorithm, results.algorithms)}
        if uneven:
            row["n"] = str(len(results.seeds_of(algorithm, goal_space)))
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
    seeds = results.seed_counts(goal_space)
    what = f"{SCORE_LABELS[score]}, {SPLIT_LABELS[split].lower()}, goal space {goal_space}"
    if max(seeds) == 1:
        return f"{what}: a single seed"
    return f"{what}: mean over n = {number_text(seeds)} seeds (lowest-highest seed)"


def note(results: Results) -> str:
    """Which runs an incomplete grid lacks; empty for a complete one."""
    missing = [run_of(entry) for entry in results.manifest["missing"]]
    return f"{sentence(results.manifest)}; missing: {run_names(missing)}." if missing else ""


def cost_table(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> pd.DataFrame:
    """What a run took: one row per algorithm, means over seeds.

    Episodes that were played only to estimate competence are shown where there were any.
    """
    cost = rows_where(statistics["cost"], goal_space=goal_space)
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        mine = rows_where(cost, **algorithm._asdict())
        rows.append(
            {
                "Sampler": algorithm_label(algorithm, results.algorithms),
                "Episodes": _number(mine["episodes"].mean(), 0),
                ESTIMATING: _number(mine["estimation_episodes"].mean(), 0),
                "Updates": _number(mine["updates"].mean(), 0),
                "Minutes": _number(mine["wall_seconds"].mean() / 60, 1),
                "Peak memory, MB": _number(mine["peak_memory_mb"].mean(), 0),
            }
        )
    table = pd.DataFrame(rows)
    return table if (cost["estimation_episodes"] > 0).any() else table.drop(columns=ESTIMATING)


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
    parts = [f"**{note(results)}**"] if note(results) else []
    for goal_space in results.goal_spaces:
        for title, table in _tables(results, statistics, goal_space):
            lines = [f"**{title}**", "", "| " + " | ".join(table.columns) + " |"]
            lines.append("|" + "---|" * len(table.columns))
            lines += ["| " + " | ".join(row) + " |" for row in table.to_numpy()]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def to_html(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> str:
    """The tables of one goal space as a page of its own, for the report."""
    tables = [
        pages.Table(title, tuple(table.columns), tuple(map(tuple, table.to_numpy())))
        for title, table in _tables(results, statistics, goal_space)
    ]
    return pages.page("Success in numbers", tables, note=note(results))
