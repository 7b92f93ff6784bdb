"""Scores of an experiment as matrices: rows are runs (seeds), columns are categories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics import intervals, measures
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.tables.grid import Algorithm
from analysis.tables.results import SPLITS, Results
from magellan.config.schema import AnalysisConfig

SCORES = ("final", "area")

Row = dict[str, Any]


def bootstrap_of(results: Results) -> Bootstrap:
    """Resampling settings of the experiment that made the tables."""
    found = settings(results)
    return Bootstrap(found.bootstrap_repetitions, found.confidence, found.bootstrap_seed)


def settings(results: Results) -> AnalysisConfig:
    """How these tables are to be judged; older ones do not say everything."""
    return AnalysisConfig.model_validate(results.experiment["analysis"])


def evaluated_categories(results: Results, goal_space: str, split: str) -> tuple[str, ...]:
    """Categories that are evaluated, in the order of the world: the columns of all matrices."""
    found = set(results.table("evaluation", goal_space=goal_space, split=split)["category"])
    return tuple(category for category in results.categories.names if category in found)


def evaluation_points(results: Results, goal_space: str) -> Matrix:
    """Length of training at each evaluation point, in `results.unit`, increasing: (points,)."""
    return np.sort(results.table("evaluation", goal_space=goal_space)[results.at].unique())


def success_curves(results: Results, algorithm: Algorithm, goal_space: str, split: str) -> Matrix:
    """Success of one algorithm: (seeds, categories, evaluation points)."""
    return _curves(results, algorithm, goal_space, split, "success")


def step_curves(results: Results, algorithm: Algorithm, goal_space: str, split: str) -> Matrix:
    """Environment steps at these points: (seeds, categories, evaluation points), not falling."""
    return _curves(results, algorithm, goal_space, split, "step")


def _curves(
    results: Results, algorithm: Algorithm, goal_space: str, split: str, column: str
) -> Matrix:
    where = {**algorithm._asdict(), "goal_space": goal_space, "split": split}
    frame = results.table("evaluation", **where)
    cube = frame.set_index(["seed", "category", results.at])[column]
    categories = evaluated_categories(results, goal_space, split)
    points = evaluation_points(results, goal_space)
    seeds = results.seeds_of(algorithm, goal_space)
    index = pd.MultiIndex.from_product([seeds, categories, points])
    values = cube.reindex(index).to_numpy(dtype=np.float64)
    return values.reshape(len(seeds), len(categories), len(points))


def score_matrices(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Matrix]:
    """Both scores of one algorithm, each (seeds, categories): `final` success and `area`."""
    curves = success_curves(results, algorithm, goal_space, split)
    points = evaluation_points(results, goal_space)
    return {
        "final": measures.final_success(curves),
        "area": measures.area_under_curve(curves, points),
    }


def algorithms_of(results: Results) -> Iterator[tuple[str, str, Algorithm]]:
    """Every goal space, split and algorithm that has runs."""
    for goal_space in results.goal_spaces:
        for split, algorithm in itertools.product(SPLITS, results.algorithms_in(goal_space)):
            yield goal_space, split, algorithm


def provenance(bootstrap: Bootstrap, shape: tuple[int, ...], method: str) -> Row:
    """What stands behind an interval of a matrix of this shape, (runs, tasks, ...)."""
    runs, tasks = shape[:2]
    resampled = method in (intervals.STUDENTISED, intervals.PERCENTILE)
    return {
        "runs": runs,
        "tasks": tasks,
        "method": method,
        "repetitions": bootstrap.repetitions if resampled else 0,
        "confidence": bootstrap.confidence,
    }
