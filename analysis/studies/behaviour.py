"""Descriptive statistics behind a comparison: practice, predictions and their lag.

There are no tests. A number is a mean over runs, with the lowest and highest run. Success and
predictions are those of the goals practised at the end of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from analysis.statistics import matrices, summaries
from analysis.statistics.matrices import COLLAPSED_BELOW, LEARNT
from analysis.statistics.practice_shares import exploited_shares, run_counts
from analysis.tables.grid import SPLIT_LABELS, Algorithm
from analysis.tables.phases import last_phase, practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results, rows_where

RISE = 0.3
"""Least rise of observed success for which a lag is measured."""
LAGS = 60
TOGETHER = ""
"""Column of the mean of all impossible categories; no category has this name."""
LATE = 2 / 3
"""Share of training left out of the practice at the end."""


def practice_shares(
    results: Results, algorithm: Algorithm, goal_space: str, start: float = 0.0
) -> pd.DataFrame:
    """Share of training episodes of each category: (seeds, categories).

    start: share of each run's first episodes to leave out, 0 to below 1.
    """
    counts = run_counts(results, algorithm, goal_space)
    episodes = counts.index.get_level_values("episode").to_series(index=counts.index)
    ends = episodes.groupby("seed").transform("max")
    counts = counts[episodes > start * ends].groupby("seed").sum()
    return counts.div(counts.sum(axis=1), axis=0)


def lag(points: np.ndarray, observed: np.ndarray, predicted: np.ndarray) -> float:
    """Lag of a prediction: the shift of the observed curve that fits it best.

    Args:
        points: training length at each evaluation, increasing: (points,).
        observed: success there: (points,).
        predicted: predicted competence there: (points,).

    Returns:
        The shift of least mean squared error, 0 to half of the training, in the unit of `points`;
        NaN if observed success rises by less than `RISE`.
    """
    if np.ptp(observed) < RISE:
        return float("nan")
    shifts = np.linspace(0.0, (points[-1] - points[0]) / 2, LAGS + 1)
    errors = [np.square(np.interp(points - d, points, observed) - predicted).mean() for d in shifts]
    return float(shifts[int(np.argmin(errors))])


def collapses(results: Results, algorithm: Algorithm, goal_space: str) -> tuple[int, int]:
    """Falls from `LEARNT` to below `COLLAPSED_BELOW` at the next evaluation, and times above."""
    curves = matrices.success_curves(results, algorithm, goal_space, practised_split(results))
    return int(matrices.collapsed(curves).sum()), int((curves[..., :-1] > LEARNT).sum())


def learnt(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Whether success on practised goals ends above `LEARNT`: (seeds, categories), boolean."""
    split = practised_split(results)
    return matrices.run_scores(results, algorithm, goal_space, split, "final") > LEARNT


def beliefs(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """The driver's predictions for practised goals: a row for each seed and category.

    Columns: `competence` and `error` (|competence - success|), means over training; `lag` (in
    `results.unit`); over evaluations after the first `BURN_IN` of training `learning_progress`
    (mean) and `lockstep` (correlation with the predicted competence of impossible goals; NaN for
    these, and if either is constant).
    """
    where = {"goal_space": goal_space, "split": practised_split(results), **algorithm._asdict()}
    frame = rows_where(summaries.predictions(results), **where)
    driver = results.driver_of(algorithm)
    frame = frame[frame["estimator"] == driver].sort_values(results.unit_column)
    rows = []
    for seed, run in frame.groupby("seed", sort=False):
        length = run[results.unit_column]
        later = run[length > length.min() + matrices.BURN_IN * (length.max() - length.min())]
        curves = later.pivot_table(
            index=results.unit_column, columns="category", values="competence"
        )
        progress = later.groupby("category")["learning_progress"].mean()
        impossible = curves.columns.difference(results.categories.feasible)
        curves[TOGETHER] = curves[impossible].mean(axis=1)
        lockstep = curves.corr()[TOGETHER].drop(impossible)
        for category, group in run.groupby("category", sort=False):
            observed, predicted = group["success"].to_numpy(), group["competence"].to_numpy()
            points = group[results.unit_column].to_numpy()
            weights = matrices.training_weights(points)
            rows.append(
                {
                    "seed": seed,
                    "category": category,
                    "competence": predicted @ weights,
                    "learning_progress": progress.get(category, float("nan")),
                    "error": np.abs(predicted - observed) @ weights,
                    "lag": lag(points, observed, predicted),
                    "lockstep": lockstep.get(category, float("nan")),
                }
            )
    return pd.DataFrame(rows)


def tables(results: Results) -> Iterator[Table]:
    """Tables of practice, predictions, learnt categories and collapses for each goal space."""
    results = last_phase(results)
    for goal_space in results.goal_spaces:
        yield from (table for table in _tables(results, goal_space) if table.rows)


def _tables(results: Results, goal_space: str) -> Iterator[Table]:
    split, space = practised_split(results), f"goal space {goal_space}"
    space += ", in the last phase" * bool(results.counted_from)
    where = f"{SPLIT_LABELS[split].lower()}, {space}"
    algorithms, words = results.algorithms_in(goal_space), [c.words for c in results.categories]

    def table(title: str, columns: Sequence[str], cells: Mapping[Algorithm, list[str]]) -> Table:
        rows = [[results.labels[name], *row] for name, row in cells.items()]
        return Table(title, ["Sampler", *columns], rows)

    for title, measure in _SHARES.items():
        shares = {name: measure(results, name, goal_space) for name in algorithms}
        cells = {
            name: [_spread(values, "z.3f") for _, values in frame.items()]
            for name, frame in shares.items()
            if frame is not None
        }
        yield table(title.format(space), words, cells)
    driven = [name for name in results.predicting(goal_space) if results.driver_of(name)]
    frames = {name: beliefs(results, name, goal_space) for name in driven}
    unit = results.unit.replace("steps", "environment steps")
    for column, title, form in _COLUMNS:
        cells = {
            name: [
                _spread(rows_where(frames[name], category=category.name)[column], form)
                for category in results.categories
            ]
            for name in algorithms
            if len(frames.get(name, ()))
        }
        title += f", {unit}" if column == "lag" else ""
        yield table(f"{title}, {where}", words, cells)
    evaluated = matrices.evaluated_categories(results, goal_space, split)
    ends = [(name, learnt(results, name, goal_space)) for name in algorithms]
    yield table(
        f"Runs with success above {LEARNT} at the end, {where}",
        [results.categories.named(name).words for name in evaluated],
        {name: [f"{runs[key].sum()} of {len(runs)}" for key in runs] for name, runs in ends},
    )
    yield table(
        f"Collapses, {where}: success above {LEARNT} that is below {COLLAPSED_BELOW} at the next "
        "evaluation",
        ["collapses", "evaluations above, with a next one"],
        {name: [*map(str, collapses(results, name, goal_space))] for name in algorithms},
    )


_SHARES: Mapping[str, Callable[[Results, Algorithm, str], pd.DataFrame | None]] = {
    "Share of training episodes, {}: mean over runs (lowest to highest)": practice_shares,
    "The same in the last third of each run's episodes, {}": partial(practice_shares, start=LATE),
    "Over training, without exploration (estimated), {}": exploited_shares,
}
_COLUMNS = (
    ("competence", "Predicted competence, mean over training", ".2f"),
    ("error", "Error of the prediction, mean over training of |predicted - observed|", ".2f"),
    ("lag", "Lag of the prediction behind observed success", ",.0f"),
    ("learning_progress", "Learning progress after the first eighth of training", ".3f"),
    (
        "lockstep",
        "Correlation with the predicted competence of impossible goals, after the first eighth",
        ".2f",
    ),
)


def _spread(values: pd.Series, form: str) -> str:
    """Mean, lowest and highest without NaN, and their count if there are NaNs."""
    valid = values.dropna()
    if valid.empty:
        return "-"
    count = f", {len(valid)} of {len(values)}" if len(valid) < len(values) else ""
    return f"{valid.mean():{form}} ({valid.min():{form}} to {valid.max():{form}}{count})"
