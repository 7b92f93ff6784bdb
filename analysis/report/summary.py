"""The main numbers as readable tables: success per algorithm and category, with its range."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pandas as pd

from analysis.statistics.matrices import SCORES
from analysis.statistics.power import order_in
from analysis.statistics.primary import PRIMARY_SCORE, equal_steps
from analysis.statistics.summaries import MEAN
from analysis.tables import printing
from analysis.tables.coverage import sentence
from analysis.tables.grid import UNIT_WORDS, Algorithm, number_text, run_names, run_of
from analysis.tables.labels import SCORE_LABELS, SPLIT_LABELS, algorithm_label
from analysis.tables.printing import Table, interval_cell
from analysis.tables.results import SPLITS, Results, rows_where

PHASE_WORDS = {"first": "at first", "area": "mean", "final": "at the end"}
ESTIMATING = "Episodes for estimating"
STATISTICS = ("comparison", "comparison_steps", "scores", "phases", "mastery", "cost")
"""Tables of statistics behind these numbers."""
STUDY, SAME_SIGN = "In the reference study", "Same sign, this size"


def success_table(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    split: str,
    score: str = "final",
) -> pd.DataFrame:
    """One row per algorithm, one column per category: `mean (lowest-highest)` over seeds.

    A column `n` gives the number of seeds if it differs between algorithms.
    """
    scores = rows_where(statistics["scores"], goal_space=goal_space, split=split)
    present = set(scores["category"])
    categories = [category for category in results.categories.names if category in present]
    uneven = len(set(results.seed_counts(goal_space))) > 1
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        by_category = rows_where(scores, **algorithm._asdict()).groupby("category")[score]
        row = {"Sampler": algorithm_label(algorithm, results.algorithms)}
        if uneven:
            row["n"] = str(len(results.seeds_of(algorithm, goal_space)))
        for category in categories:
            values = by_category.get_group(category)
            row[results.categories.named(category).words] = _cell(values)
        rows.append(row)
    return pd.DataFrame(rows)


def phase_table(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str, split: str
) -> pd.DataFrame:
    """One row per algorithm, three columns per phase: `mean (interval)` over seeds.

    Of a run's mean over feasible categories: at the first evaluation of the phase, over the phase,
    and at its last evaluation.
    """
    frame = rows_where(statistics["phases"], goal_space=goal_space, split=split, category=MEAN)
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        row = {"Sampler": algorithm_label(algorithm, results.algorithms)}
        for _, cell in rows_where(frame, **algorithm._asdict()).iterrows():
            interval = f" ({cell['low']:.2f}-{cell['high']:.2f})" if cell["runs"] > 1 else ""
            column = f"Phase {cell['phase']}, {PHASE_WORDS[cell['score']]}"
            row[column] = f"{cell['value']:.2f}{interval}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _cell(values: pd.Series) -> str:
    if len(values) == 1:
        return f"{values.iloc[0]:.2f}"
    return f"{values.mean():.2f} ({values.min():.2f}-{values.max():.2f})"


def _over_seeds(results: Results, goal_space: str) -> str:
    seeds = results.seed_counts(goal_space)
    if max(seeds) == 1:
        return "a single seed"
    return f"mean over n = {number_text(seeds)} seeds (lowest-highest seed)"


def heading(results: Results, goal_space: str, split: str, score: str) -> str:
    """Heading of a table of success."""
    score_label = SCORE_LABELS[score] + results.counted_from
    measure = f"{score_label}, {SPLIT_LABELS[split].lower()}, goal space {goal_space}"
    return f"{measure}: {_over_seeds(results, goal_space)}"


def note(results: Results) -> str:
    """The missing runs of an incomplete grid; empty for a complete one."""
    missing = [run_of(entry) for entry in results.manifest["missing"]]
    return f"{sentence(results.manifest)}; missing: {run_names(missing)}." if missing else ""


def cost_table(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> pd.DataFrame:
    """Cost of a run: one row per algorithm, `mean (lowest-highest)` over seeds.

    Seeds whose manifest lacks a number are left out. Episodes played only to estimate competence
    are shown if there are any.
    """
    cost = rows_where(statistics["cost"], goal_space=goal_space)
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        runs = rows_where(cost, **algorithm._asdict())
        rows.append(
            {
                "Sampler": algorithm_label(algorithm, results.algorithms),
                "Episodes": _range(runs["episodes"], 0),
                ESTIMATING: _range(runs["estimation_episodes"], 0),
                "Environment steps": _range(runs["steps"], 0),
                "Updates": _range(runs["updates"], 0),
                "Minutes": _range(runs["wall_seconds"] / 60, 1),
                "Peak memory, MB": _range(runs["peak_memory_mb"], 0),
            }
        )
    table = pd.DataFrame(rows)
    return table if (cost["estimation_episodes"] > 0).any() else table.drop(columns=ESTIMATING)


def _range(values: pd.Series, digits: int) -> str:
    values = values.dropna()
    if values.empty:
        return "n/a"
    summary = values.mean(), values.min(), values.max()
    mean, low, high = (f"{value:,.{digits}f}" for value in summary)
    return mean if low == high else f"{mean} ({low}-{high})"


def comparison_table(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    study: Results | None = None,
    name: str = "comparison",
) -> pd.DataFrame:
    """The pre-registered comparison: one row per split and baseline; may be empty.

    With a larger `study` of the same algorithms: its difference, and how often an experiment of
    this size would have its sign.

    name: of the statistic; `comparison_steps` is the secondary one, at equal steps.
    """
    frame = rows_where(statistics[name], goal_space=goal_space, score=PRIMARY_SCORE)
    rows = []
    for split in SPLITS:
        for _, row in rows_where(frame, split=split).iterrows():
            baseline = Algorithm(row["baseline"], row["baseline_variant"])
            rows.append(
                {
                    "Goals": SPLIT_LABELS[split] + " (primary)" * bool(row["primary"]),
                    "Compared with": algorithm_label(baseline, results.algorithms),
                    "n": f"{row['runs']} and {row['baseline_runs']}",
                    "Difference": f"{row['difference']:+.3f}",
                    f"{row['confidence']:.0%} interval": interval_cell(row["low"], row["high"]),
                    "p": _p_value(row["p_holm"]),
                    "p, uncorrected": _p_value(row["p"]),
                    "p, paired": _p_value(row["p_paired"]),
                    **_order_cells(study, results, baseline, goal_space, split),
                }
            )
    return pd.DataFrame(rows)


def _order_cells(
    study: Results | None, results: Results, baseline: Algorithm, goal_space: str, split: str
) -> dict[str, str]:
    """Cells with a larger study's result for a pair; none without a study."""
    if study is None:
        return {}
    order = order_in(study, results, (results.reference, baseline), goal_space, split)
    if order is None:
        return {STUDY: "n/a", SAME_SIGN: "n/a"}
    runs = " and ".join(map(str, order.runs))
    return {STUDY: f"{order.difference:+.3f} (n = {runs})", SAME_SIGN: f"{order.chance:.0%}"}


def _p_value(p: float) -> str:
    if pd.isna(p):
        return "n/a"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def mastery_table(
    results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str, split: str
) -> pd.DataFrame:
    """One row per algorithm, one column per category: `runs that master (mean episodes)`."""
    frame = rows_where(statistics["mastery"], goal_space=goal_space, split=split)
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        row = {"Sampler": algorithm_label(algorithm, results.algorithms)}
        for _, counts in rows_where(frame, **algorithm._asdict()).iterrows():
            cell = f"{counts['mastered']} of {counts['runs']} ({counts['restricted_mean']:,.0f})"
            row[results.categories.named(counts["category"]).words] = cell
        rows.append(row)
    return pd.DataFrame(rows)


def comparison_heading(results: Results, goal_space: str) -> str:
    """Heading of the table of the comparison."""
    reference = algorithm_label(results.reference, results.algorithms)
    score = SCORE_LABELS[PRIMARY_SCORE].lower() + results.counted_from
    return (
        f"{reference} minus each other (permutation of whole runs, Holm): {score}, mean over "
        f"feasible categories, goal space {goal_space}"
    )


def _frames(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    study: Results | None = None,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """All tables of a goal space, with their headings."""
    comparison = comparison_table(results, statistics, goal_space, study)
    if len(comparison):
        yield comparison_heading(results, goal_space), comparison
    at_steps = comparison_table(results, statistics, goal_space, name="comparison_steps")
    if len(at_steps):
        steps = f"the first {equal_steps(results, goal_space):,.0f} environment steps"
        steps += f"{results.counted_from} of each run"
        yield f"Secondary, over {steps}: {comparison_heading(results, goal_space)}", at_steps
    seeds = number_text(results.seed_counts(goal_space))
    confidence = results.experiment["analysis"]["confidence"]
    for split in SPLITS if results.whole is not None else ():
        yield (
            f"Success by phase, mean over feasible categories, {SPLIT_LABELS[split].lower()}, goal "
            f"space {goal_space}: mean over n = {seeds} seeds ({confidence:.0%} interval)",
            phase_table(results, statistics, goal_space, split),
        )
    for score, split in itertools.product(SCORES, SPLITS):
        table = success_table(results, statistics, goal_space, split, score)
        yield heading(results, goal_space, split, score), table
    for split in SPLITS:
        yield (
            f"Runs that master a category, {SPLIT_LABELS[split].lower()}, goal space {goal_space} "
            f"(mean {UNIT_WORDS[results.unit]} until then; a run that never does counts as the "
            "whole training)",
            mastery_table(results, statistics, goal_space, split),
        )
    cost = cost_table(results, statistics, goal_space)
    yield f"Cost of a run, goal space {goal_space}: {_over_seeds(results, goal_space)}", cost


def tables(
    results: Results, statistics: Mapping[str, pd.DataFrame], study: Results | None = None
) -> list[Table]:
    """All tables of all goal spaces."""
    return [
        as_table(title, frame)
        for goal_space in results.goal_spaces
        for title, frame in _frames(results, statistics, goal_space, study)
    ]


def as_table(title: str, frame: pd.DataFrame) -> Table:
    """A table with this heading from a frame of texts."""
    return Table(title, tuple(frame.columns), tuple(map(tuple, frame.to_numpy())))


def to_html(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    study: Results | None = None,
) -> str:
    """The tables of one goal space as a page of its own, for the report."""
    listed = [as_table(*table) for table in _frames(results, statistics, goal_space, study)]
    return printing.page("Success in numbers", listed, note=note(results))
