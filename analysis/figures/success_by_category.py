"""How well do the agents do in each category, on training and on unseen goals, over training?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.labels import SPLIT_LABELS
from analysis.results import SPLITS, Results, rows_where


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """Rows are splits, columns are categories, one line per algorithm."""
    band = min(results.seed_counts(goal_space)) >= style.SEEDS_FOR_BAND
    marks = "line: mean over seeds, " + ("band: interval of it" if band else "thin: each seed")
    subtitle = (
        f"{style.describe(results, goal_space)}; {style.seed_lines(results, goal_space, marks)}"
    )
    feasible = results.categories.feasible
    figure, axes = style.page(
        (len(SPLITS), len(feasible)),
        (max(9.6, 2.4 * len(feasible)), 5.4),
        "Success per category over training",
        subtitle,
        style.algorithm_handles(results, goal_space),
        sharex=True,
        sharey=True,
    )
    success = statistics["success"]
    success = success[success["goal_space"] == goal_space]
    for row, split in enumerate(SPLITS):
        for column, category in enumerate(feasible):
            _panel(axes[row, column], results, success, (goal_space, split, category), band)
        axes[row, 0].set_ylabel(f"{SPLIT_LABELS[split]}\nsuccess rate")
    for column, category in enumerate(feasible):
        axes[0, column].set_title(results.categories.named(category).words)
        axes[-1, column].set_xlabel(results.length_label)
    style.training_axis(axes.flat, success[results.at].max())
    style.fraction_axis(axes.flat)
    style.footnote(figure, _footnote(results, goal_space, band))
    return figure


def _panel(
    ax: Axes, results: Results, success: pd.DataFrame, cell: tuple[str, str, str], band: bool
) -> None:
    goal_space, split, category = cell
    chosen = success[(success["split"] == split) & (success["category"] == category)]
    styles = style.algorithm_styles(results.algorithms)
    for algorithm in results.algorithms_in(goal_space):
        look = styles[algorithm]
        mean = rows_where(chosen, **algorithm._asdict()).sort_values(results.at)
        if not len(mean):
            continue  # no such goals; an empty line that is not clipped would lie in the corner
        if band:
            low, high = mean["low"], mean["high"]
            ax.fill_between(mean[results.at], low, high, color=look.color, alpha=0.18, lw=0)
        elif len(results.seeds_of(algorithm, goal_space)) > 1:
            where = {"goal_space": goal_space, "split": split, "category": category}
            runs = results.table("evaluation", **algorithm._asdict(), **where)
            for _, run in runs.groupby("seed"):
                ax.plot(run[results.at], run["success"], color=look.color, lw=0.7, alpha=0.45)
        ax.plot(
            mean[results.at],
            mean["mean"],
            color=look.color,
            linestyle=look.dash,
            linewidth=1.8,
            marker=look.marker,
            markersize=4,
            markevery=style.marker_spacing(len(mean)),
            clip_on=False,
            zorder=3,
        )


def _footnote(results: Results, goal_space: str, band: bool) -> str:
    counts = results.table("evaluation", goal_space=goal_space)["n"]
    goals = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}-{counts.max()}"
    noise = 0.5 / counts.min() ** 0.5
    text = f"Each point: {goals} episodes per seed (standard error up to {noise:.2f})."
    if not band:
        return f"{text} No smoothing."
    return f"{text} {style.interval_text(results, goal_space, style.STUDENTISED)}"
