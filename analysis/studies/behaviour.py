"""Descriptive statistics behind a comparison: practice, predictions and their lag.

There are no tests. A number is a mean over runs, with the lowest and highest run. Success and
predictions are those of the goals practised at the end of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd

from analysis.statistics import matrices, summaries
from analysis.statistics.matrices import (
    BURN_IN,
    COLLAPSED_BELOW,
    LEARNT,
    collapsed,
    evaluated_categories,
    success_curves,
)
from analysis.statistics.practice_shares import exploited_shares, run_counts
from analysis.tables.grid import Algorithm
from analysis.tables.labels import SPLIT_LABELS, algorithm_label
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

    Args:
        results: combined tables.
        algorithm: algorithm of the runs.
        goal_space: their goal space.
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
    curves = success_curves(results, algorithm, goal_space, practised_split(results))
    return int(collapsed(curves).sum()), int((curves[..., :-1] > LEARNT).sum())


def learnt(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Whether success on practised goals ends above `LEARNT`: (seeds, categories), boolean."""
    split = practised_split(results)
    ends = success_curves(results, algorithm, goal_space, split)[..., -1]
    return pd.DataFrame(
        ends > LEARNT,
        index=results.seeds_of(algorithm, goal_space),
        columns=list(evaluated_categories(results, goal_space, split)),
    )


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
        later = run[length > length.min() + BURN_IN * (length.max() - length.min())]
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
        yield from _tables(results, goal_space)


def _tables(results: Results, goal_space: str) -> Iterator[Table]:
    names = [results.categories.named(name).words for name in results.categories.names]
    split = practised_split(results)
    space = f"goal space {goal_space}"
    where = f"{SPLIT_LABELS[split].lower()}, {space}"
    whole = f"Share of training episodes, {space}: mean over runs (lowest to highest)"
    late = f"The same in the last third of each run's episodes, {space}"
    chosen = f"Over the whole training, without exploration (estimated), {space}"
    for title, measure in (
        (whole, practice_shares),
        (late, partial(practice_shares, start=LATE)),
        (chosen, exploited_shares),
    ):
        rows = _practice(results, goal_space, measure)
        if rows:
            yield Table(title, ["Sampler", *names], rows)
    algorithms = results.algorithms_in(goal_space)
    labelled = [(algorithm_label(name, results.algorithms), name) for name in algorithms]
    frames = {
        algorithm: beliefs(results, algorithm, goal_space)
        for algorithm in results.predicting(goal_space)
        if results.driver_of(algorithm)
    }
    for column, title, form in _COLUMNS:
        rows = [
            [label, *_by_category(results, frame, column, form)]
            for label, algorithm in labelled
            if len(frame := frames.get(algorithm, ()))
        ]
        if rows:
            unit = results.unit.replace("steps", "environment steps")
            title += f", {unit}" if column == "lag" else ""
            yield Table(f"{title}, {where}", ["Sampler", *names], rows)
    evaluated = evaluated_categories(results, goal_space, split)
    yield Table(
        f"Runs with success above {LEARNT} at the end, {where}",
        ["Sampler", *(results.categories.named(name).words for name in evaluated)],
        [[label, *_learnt(results, algorithm, goal_space)] for label, algorithm in labelled],
    )
    yield Table(
        f"Collapses, {where}: success above {LEARNT} that is below {COLLAPSED_BELOW} at the next "
        "evaluation",
        ["Sampler", "collapses", "evaluations above, with a next one"],
        [
            [label, *map(str, collapses(results, algorithm, goal_space))]
            for label, algorithm in labelled
        ],
    )


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


def _practice(
    results: Results,
    goal_space: str,
    measure: Callable[[Results, Algorithm, str], pd.DataFrame | None],
) -> list[list[str]]:
    rows = []
    for algorithm in results.algorithms_in(goal_space):
        shares = measure(results, algorithm, goal_space)
        if shares is not None:
            label = algorithm_label(algorithm, results.algorithms)
            rows.append([label, *(_spread(shares[name], "z.3f") for name in shares.columns)])
    return rows


def _learnt(results: Results, algorithm: Algorithm, goal_space: str) -> list[str]:
    runs = learnt(results, algorithm, goal_space)
    return [f"{runs[name].sum()} of {len(runs)}" for name in runs.columns]


def _by_category(results: Results, frame: pd.DataFrame, column: str, form: str) -> list[str]:
    return [
        _spread(rows_where(frame, category=name)[column], form) for name in results.categories.names
    ]


def _spread(values: pd.Series, form: str) -> str:
    """Mean, lowest and highest without NaN, and their count if there are NaNs."""
    valid = values.dropna()
    if valid.empty:
        return "-"
    count = f", {len(valid)} of {len(values)}" if len(valid) < len(values) else ""
    return f"{valid.mean():{form}} ({valid.min():{form}} to {valid.max():{form}}{count})"
