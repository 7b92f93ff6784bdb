"""How well do the agents do in each category, on training and on unseen goals, over training?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.tables.labels import SPLIT_LABELS
from analysis.tables.results import SPLITS, Results

MARKS = "thick: mean over seeds, thin: each seed"


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories; a thick line per algorithm, a thin one per run."""
    marks = style.seed_lines(results, goal_space, MARKS)
    feasible = results.categories.feasible
    figure, axes = style.page(
        (len(SPLITS), len(feasible)),
        (max(9.6, 2.4 * len(feasible)), 5.4),
        "Success per category over training",
        f"{style.describe(results, goal_space)}; {marks}",
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    success = results.table("evaluation", goal_space=goal_space)
    for row, split in enumerate(SPLITS):
        for column, category in enumerate(feasible):
            mine = success[(success["split"] == split) & (success["category"] == category)]
            _panel(axes[row, column], results, mine, goal_space)
        axes[row, 0].set_ylabel(f"{SPLIT_LABELS[split]}\nsuccess rate")
    for column, category in enumerate(feasible):
        axes[0, column].set_title(results.categories.named(category).words)
        axes[-1, column].set_xlabel(results.length_label)
    style.training_axis(axes.flat, success[results.at].max())
    style.fraction_axis(axes.flat)
    style.footnote(figure, _footnote(success["n"]))
    return figure


def _panel(ax: Axes, results: Results, success: pd.DataFrame, goal_space: str) -> None:
    if not len(success):
        style.nothing_here(ax, "no goals of this category\nin the goal space")
    styles = style.algorithm_styles(results.algorithms)
    for algorithm in results.algorithms_in(goal_space):
        mine = success[(success[["sampler", "variant"]] == algorithm).all(axis=1)]
        if not len(mine):
            continue  # no such goals; an empty line that is not clipped would lie in the corner
        runs = mine.pivot_table(index="seed", columns=results.at, values="success")
        style.run_lines(ax, runs.columns, runs.to_numpy(), styles[algorithm].color)
        style.mean_line(ax, runs.columns, runs.mean(), styles[algorithm])


def _footnote(counts: pd.Series) -> str:
    goals = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}-{counts.max()}"
    noise = 0.5 / counts.min() ** 0.5
    return (
        f"Each point: {goals} episodes per seed (standard error up to {noise:.2f}). No smoothing. "
        "Intervals of the means are in statistics/success.csv."
    )
