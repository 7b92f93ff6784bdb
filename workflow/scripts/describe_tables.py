"""Write docs/tables.md: every column of every table."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from analysis.statistics.summaries import STATISTICS  # noqa: E402
from analysis.tables.columns import ELSEWHERE, MEANINGS, OF_RUNS, columns_of_runs, meaning  # noqa: E402

PAGE = ROOT / "docs" / "tables.md"
EXAMPLES = ROOT / "results" / "reference" / "statistics"
"""Statistics with current columns (a test checks them)."""
Table = tuple[str, str, Sequence[str]]
"""Name, description, columns."""

BEGINNING = """# Tables and their columns

<!-- Made by `python workflow/scripts/describe_tables.py` from analysis/tables/columns.py. -->

All tables are CSV files: `results/NAME/tables` has those of the runs, `results/NAME/statistics`
the [statistics](statistics.md) computed from them. Mean success over training, on training goals:

    import pandas as pd
    scores = pd.read_csv("results/reference/statistics/scores.csv").query("split == 'train'")
    print(scores.groupby(["sampler", "variant"])["area"].mean())

A variant called `NA` or `1` is read correctly with `dtype={"variant": str}, keep_default_na=False`.
In statistics, `step` is replaced by `episode` or `update` if these end the runs. With phases, all
tables of runs have the column `phase` too.
"""


def page() -> str:
    """The whole page."""
    sections = [("Of runs", of_runs()), ("Statistics", of_statistics())]
    counts = Counter(c for _, tables in sections for *_, columns in tables for c in columns)
    shared = [column for column, count in counts.items() if count > 1]
    parts = [BEGINNING, "## Columns of several tables\n", *_items((c, MEANINGS[c]) for c in shared)]
    for title, tables in sections:
        parts.append(f"## {title}\n")
        parts += [_section(*table, shared) for table in tables]
    return "\n".join(parts)


def of_runs() -> list[Table]:
    return [(name, OF_RUNS[name], columns) for name, columns in columns_of_runs()]


def of_statistics() -> list[Table]:
    return [
        (name, (inspect.getdoc(spec.compute) or "").splitlines()[0], _columns(name))
        for name, spec in sorted(STATISTICS.items())
    ]


def _columns(name: str) -> Sequence[str]:
    header = (EXAMPLES / f"{name}.csv").read_text(encoding="utf-8").partition("\n")[0]
    return header.split(",")


def _section(name: str, text: str, columns: Sequence[str], shared: Sequence[str]) -> str:
    """Columns that several tables have, then those specific to this table with their meaning."""
    own = [c for c in columns if c not in shared or (name, c) in ELSEWHERE]
    others = ", ".join(f"`{column}`" for column in columns if column not in own)
    meanings = _items((column, meaning(name, column)) for column in own)
    end = ", and" if own else "."
    return "\n".join([f"### {name}.csv", "", f"{text} Columns: {others}{end}", "", *meanings])


def _items(meanings: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"- `{column}`: {text}" for column, text in meanings]
    return [*lines, ""] if lines else []


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
