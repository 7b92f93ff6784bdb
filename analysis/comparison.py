"""Two experiments that should differ in one setting only: do their runs learn alike?

Runs are paired by seed. The difference of a category is the mean over seeds; its interval is the
percentile bootstrap over seeds of that mean.
"""

from __future__ import annotations

import itertools

import numpy as np

from analysis.coverage import run_name
from analysis.statistics import Matrix
from analysis.summaries import evaluated_categories, evaluation_points, score_matrices
from analysis.tables import SPLITS, Results
from magellan.errors import InputError

CONFIDENCE = 0.95
RESAMPLES = 9_999
SEED = 0

Interval = tuple[float, float]


def mean_difference(differences: Matrix) -> tuple[float, Interval | None]:
    """Mean of differences (seeds,) and its bootstrap interval; None with a single seed."""
    mean = float(differences.mean())
    if len(differences) < 2:
        return mean, None
    if np.ptp(differences) == 0.0:
        return mean, (mean, mean)
    from scipy.stats import bootstrap

    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return mean, (float(found.low), float(found.high))


def check_comparable(first: Results, second: Results) -> None:
    """InputError unless both have the same samplers, goal spaces, seeds and evaluations."""
    for key in ("samplers", "goal_spaces", "seeds"):
        mine, other = (list(results.experiment[key]) for results in (first, second))
        if mine != other and not (key == "seeds" and set(mine) == set(other)):
            raise InputError(f"compare: {key} are {mine} and {other}; must be the same")
    for run in sorted(set(first.runs) ^ set(second.runs)):
        raise InputError(f"compare: {run_name(run)} is there in one of the two only")
    for goal_space in first.goal_spaces:
        points = [evaluation_points(results, goal_space).tolist() for results in (first, second)]
        if points[0] != points[1]:
            raise InputError(f"compare: goal space {goal_space!r} is evaluated at other episodes")
        for split in SPLITS:
            found = [
                evaluated_categories(results, goal_space, split) for results in (first, second)
            ]
            if found[0] != found[1]:
                raise InputError(
                    f"compare: goal space {goal_space!r}, split {split!r} has other categories"
                )


def _by_seed(results: Results, sampler: str, goal_space: str, split: str) -> Matrix:
    """Mean success over training, (seeds in increasing order, categories)."""
    area = score_matrices(results, sampler, goal_space, split)["area"]
    return area[np.argsort(results.seeds_of(sampler, goal_space))]


def to_markdown(first: Results, second: Results) -> str:
    """One table per sampler and goal space: a row per split and category.

    Mean success over training is the area under the learning curve divided by its length, as in
    `analysis.statistics.area_under_curve`.

    Raises:
        InputError: the experiments have not the same runs, or were not evaluated alike.
    """
    check_comparable(first, second)
    names = [str(results.experiment["experiment"]) for results in (first, second)]
    parts = []
    for sampler, goal_space in itertools.product(first.samplers, first.goal_spaces):
        if sampler not in first.samplers_in(goal_space):
            continue
        lines = [
            f"**Mean success over training, sampler {sampler}, goal space {goal_space}: "
            f"{names[0]} and {names[1]}, paired by seed**",
            "",
            f"| split | category | {names[0]} | {names[1]} | difference | "
            f"{CONFIDENCE:.0%} interval | n |",
            "|---|---|---|---|---|---|---|",
        ]
        for split in SPLITS:
            ours, theirs = (_by_seed(r, sampler, goal_space, split) for r in (first, second))
            categories = evaluated_categories(first, goal_space, split)
            for column, category in enumerate(categories):
                pair = ours[:, column], theirs[:, column]
                lines.append(_row(split, category, *pair))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _row(split: str, category: str, first: Matrix, second: Matrix) -> str:
    difference, interval = mean_difference(second - first)
    between = "n/a" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"
    means = f"{first.mean():.3f} | {second.mean():.3f} | {difference:+.3f}"
    return f"| {split} | {category} | {means} | {between} | {len(first)} |"
