"""The main numbers as readable tables: success per algorithm and category, with its range."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.statistics.matrices import SCORES, equal_length, settings
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.statistics.summaries import MEAN
from analysis.tables import grid
from analysis.tables.coverage import sentence
from analysis.tables.grid import SCORE_LABELS, SPLIT_LABELS, Algorithm, number_text
from analysis.tables.printing import Table, chance, interval_cell
from analysis.tables.results import SPLITS, Results, rows_where

PHASE_WORDS = {"first": "at first", "area": "mean", "final": "at the end"}
ESTIMATING = "Episodes for estimating"
STATISTICS = ("comparison", "comparison_steps", "scores", "phases", "mastery", "cost")
"""Tables of statistics behind these numbers."""


class SummaryTables(NamedTuple):
    """The tables of one goal space, a row for each algorithm or pair of them."""

    results: Results
    statistics: Mapping[str, pd.DataFrame]  # of `STATISTICS`, as far as a table needs them
    goal_space: str

    def tables(self) -> Iterator[Table]:
        """All of them."""
        steps = f"{equal_length(self.results, self.goal_space):,.0f} environment steps"
        scope = f"Secondary, over the first {steps}{self.results.counted_from} of each run: "
        compared = self.compared("comparison", ""), self.compared("comparison_steps", scope)
        yield from (table for table in compared if table.rows)
        for split in SPLITS if self.results.whole is not None else ():
            yield self.phases(split)
        for score, split in itertools.product(SCORES, SPLITS):
            yield self.success(split, score)
        yield from map(self.mastery, SPLITS)
        yield self.cost()

    def compared(self, name: str, scope: str) -> Table:
        """The pre-registered comparison, or that at equal steps; may have no rows.

        A row for each split and baseline; scope: beginning of the caption.
        """
        rows = []
        for row in self._rows(name, score=PRIMARY_SCORE).to_dict("records"):
            baseline = Algorithm(row["baseline"], row["baseline_variant"])
            rows.append(
                {
                    "Goals": SPLIT_LABELS[row["split"]] + " (primary)" * bool(row["primary"]),
                    "Compared with": self.results.labels[baseline],
                    "n": f"{row['runs']} and {row['baseline_runs']}",
                    "Difference": f"{row['difference']:+.3f}",
                    f"{100 * row['confidence']:g}% interval": interval_cell(
                        row["low"], row["high"]
                    ),
                    "p": chance(row["p_holm"]),
                    "p, uncorrected": chance(row["p"]),
                    "p, paired": chance(row["p_paired"]) or "n/a",
                }
            )
        score = SCORE_LABELS[PRIMARY_SCORE].lower() + self.results.counted_from
        title = (
            f"{scope}{self.results.labels[self.results.reference]} minus each other (permutation "
            f"of whole runs, Holm): {score}, mean over feasible categories, goal space "
            f"{self.goal_space}"
        )
        return _table(title, rows)

    def phases(self, split: str) -> Table:
        """Three columns per phase: `mean (interval)` over seeds.

        Of a run's mean over feasible categories: at the first evaluation of the phase, over the
        phase, and at its last evaluation.
        """

        def cells(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
            for row in rows.itertuples():
                interval = f" ({row.low:.2f}-{row.high:.2f})" if row.runs > 1 else ""
                column = f"Phase {row.phase}, {PHASE_WORDS[row.score]}"
                yield column, f"{row.value:.2f}{interval}"

        seeds = number_text(self.results.seed_counts(self.goal_space))
        confidence = settings(self.results).confidence
        title = (
            f"Success by phase, mean over feasible categories, {self._where(split)}: mean over n = "
            f"{seeds} seeds ({100 * confidence:g}% interval)"
        )
        return self._by_sampler(title, self._rows("phases", split=split, category=MEAN), cells)

    def success(self, split: str, score: str = "final") -> Table:
        """One column per category: `mean (lowest-highest)` over seeds.

        A column `n` gives the number of seeds if it differs between algorithms.
        """
        uneven = len(set(self.results.seed_counts(self.goal_space))) > 1

        def cells(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
            if uneven:
                yield "n", str(rows["seed"].nunique())
            for category, values in rows.groupby("category", sort=False)[score]:
                yield self._words(category), _cell(values)

        measure = f"{SCORE_LABELS[score]}{self.results.counted_from}, {self._where(split)}"
        title = f"{measure}: {self._over_seeds()}"
        return self._by_sampler(title, self._rows("scores", split=split), cells)

    def mastery(self, split: str) -> Table:
        """One column per category: `runs that master (mean episodes)`."""

        def cells(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
            for row in rows.itertuples():
                runs = f"{row.mastered} of {row.runs}"
                yield self._words(row.category), f"{runs} ({row.restricted_mean:,.0f})"

        title = (
            f"Runs that master a category, {self._where(split)} (mean "
            f"{grid.UNIT_WORDS[self.results.unit]} until then; a run that never does counts as the "
            "whole training)"
        )
        return self._by_sampler(title, self._rows("mastery", split=split), cells)

    def cost(self) -> Table:
        """Cost of a run: `mean (lowest-highest)` over seeds.

        Seeds whose manifest lacks a number are left out. Episodes played only to estimate
        competence are shown if there are any.
        """
        cost = self._rows("cost")

        def cells(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
            yield "Episodes", _range(runs["episodes"], 0)
            if (cost["estimation_episodes"] > 0).any():
                yield ESTIMATING, _range(runs["estimation_episodes"], 0)
            yield "Environment steps", _range(runs["steps"], 0)
            yield "Updates", _range(runs["updates"], 0)
            yield "Minutes", _range(runs["wall_seconds"] / 60, 1)
            yield "Peak memory, MB", _range(runs["peak_memory_mb"], 0)

        title = f"Cost of a run, goal space {self.goal_space}: {self._over_seeds()}"
        return self._by_sampler(title, cost, cells)

    def _rows(self, name: str, **where: str) -> pd.DataFrame:
        return rows_where(self.statistics[name], goal_space=self.goal_space, **where)

    def _by_sampler(
        self,
        title: str,
        frame: pd.DataFrame,
        cells: Callable[[pd.DataFrame], Iterator[tuple[str, str]]],
    ) -> Table:
        rows = [
            {
                "Sampler": self.results.labels[algorithm],
                **dict(cells(rows_where(frame, **algorithm._asdict()))),
            }
            for algorithm in self.results.algorithms_in(self.goal_space)
        ]
        return _table(title, rows)

    def _where(self, split: str) -> str:
        return f"{SPLIT_LABELS[split].lower()}, goal space {self.goal_space}"

    def _words(self, category: Any) -> str:
        return self.results.categories.named(category).words

    def _over_seeds(self) -> str:
        seeds = self.results.seed_counts(self.goal_space)
        if max(seeds) == 1:
            return "a single seed"
        return f"mean over n = {number_text(seeds)} seeds (lowest-highest seed)"


def tables(results: Results, statistics: Mapping[str, pd.DataFrame]) -> Iterator[Table]:
    """All tables of all goal spaces."""
    for goal_space in results.goal_spaces:
        yield from SummaryTables(results, statistics, goal_space).tables()


def note(results: Results) -> str:
    """The missing runs of an incomplete grid; empty for a complete one."""
    missing = [grid.run_of(entry) for entry in results.manifest["missing"]]
    return f"{sentence(results.manifest)}; missing: {grid.run_names(missing)}." if missing else ""


def _table(title: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """A table from rows by column; cells that a row lacks are empty."""
    columns = tuple(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return Table(title, columns, [[row.get(name, "") for name in columns] for row in rows])


def _cell(values: pd.Series) -> str:
    if len(values) == 1:
        return f"{values.iloc[0]:.2f}"
    return f"{values.mean():.2f} ({values.min():.2f}-{values.max():.2f})"


def _range(values: pd.Series, digits: int) -> str:
    values = values.dropna()
    if values.empty:
        return "n/a"
    summary = values.mean(), values.min(), values.max()
    mean, low, high = (f"{value:,.{digits}f}" for value in summary)
    return mean if low == high else f"{mean} ({low}-{high})"
