"""Writes docs/tables.md: every column of every table; takes no arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from analysis.statistics.summaries import STATISTICS  # noqa: E402
from analysis.tables.columns import OF_RUNS, columns_of_runs, meaning  # noqa: E402
from analysis.tables.printing import head, row  # noqa: E402

PAGE = ROOT / "docs" / "tables.md"
EXAMPLES = ROOT / "results" / "reference" / "statistics"
"""Statistics whose columns are those of the code (a test holds that)."""

BEGINNING = """# Tables and their columns

<!-- Made by `python workflow/scripts/describe_tables.py` from analysis/tables/columns.py. -->

All tables are CSV files: `results/NAME/tables` has those of the runs, `results/NAME/statistics`
what is computed of them ([how](statistics.md)). Three lines of pandas, for mean success over
training on training goals:

    import pandas as pd
    scores = pd.read_csv("results/reference/statistics/scores.csv").query("split == 'train'")
    print(scores.groupby(["sampler", "variant"])["area"].mean())

A variant called `NA` or `1` is read as it is with `dtype={"variant": str}, keep_default_na=False`.
In statistics `step` stands for `episode` or `update` where these end the runs. In experiments with
phases all tables of runs have the column `phase` too.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([BEGINNING, *_of_runs(), *_of_statistics()])


def _of_runs() -> Iterator[str]:
    yield "## Of runs\n"
    for name, columns in columns_of_runs():
        yield _section(name, OF_RUNS[name], columns)


def _of_statistics() -> Iterator[str]:
    yield "## Statistics\n"
    for name, spec in sorted(STATISTICS.items()):
        text = inspect.getdoc(spec.compute) or ""
        header = (EXAMPLES / f"{name}.csv").read_text(encoding="utf-8").partition("\n")[0]
        yield _section(name, text.splitlines()[0], header.split(","))


def _section(name: str, text: str, columns: Sequence[str]) -> str:
    rows = [row([f"`{column}`", meaning(name, column)]) for column in columns]
    return "\n".join([f"### {name}.csv", "", text, "", *head(["column", "what it is"]), *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
