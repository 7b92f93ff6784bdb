"""Success phase by phase: what is lost where goals are replaced, and how soon it is back.

Whole runs are the unit, in every phase. What samplers are compared by is their last phase alone
(`analysis.statistics.primary`): there is no test here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics import intervals
from analysis.statistics.intervals import Matrix
from analysis.statistics.matrices import (
    Row,
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    evaluation_points,
    provenance,
    score_matrices,
    success_curves,
)
from analysis.statistics.registry import register_statistic
from analysis.tables.grid import Algorithm
from analysis.tables.phases import OnePhase, each_phase
from analysis.tables.results import SPLITS, Results

PHASE_SCORES = ("first", "area", "final")
"""Success at the first evaluation of a phase, its mean over the phase, and at the last one."""
MEAN = "mean"
"""Stands for a category: the mean of those that are evaluated, one number of each run."""

COLUMNS = (
    "goal_space",
    "phase",
    "begins",
    "practised",
    "split",
    "category",
    "sampler",
    "variant",
    "score",
    "value",
    "low",
    "high",
    "runs",
    "tasks",
    "method",
    "repetitions",
    "confidence",
)


@register_statistic("phases")
def phases(results: Results) -> pd.DataFrame:
    """Success in each phase of each algorithm: at its first evaluation, on average, at its last.

    Empty where runs have one phase.
    """
    rows: list[Row] = []
    for phase in each_phase(results):
        for goal_space, split, algorithm in algorithms_of(phase.results):
            where = {
                "goal_space": goal_space,
                "phase": phase.number,
                "begins": phase.begins,
                "practised": phase.goals.split,
                "split": split,
            }
            rows += [
                {**where, **row} for row in _scores(phase.results, algorithm, goal_space, split)
            ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _scores(results: Results, algorithm: Algorithm, goal_space: str, split: str) -> Iterator[Row]:
    """The rows of one phase, algorithm and split."""
    bootstrap = bootstrap_of(results)
    matrices = score_matrices(results, algorithm, goal_space, split)
    matrices["first"] = success_curves(results, algorithm, goal_space, split)[..., 0]
    categories = evaluated_categories(results, goal_space, split)
    for score in PHASE_SCORES:
        values = np.column_stack([matrices[score], matrices[score].mean(axis=1)])
        found = intervals.mean_estimate(values, bootstrap)
        for column, category in enumerate((*categories, MEAN)):
            tasks = len(categories) if category == MEAN else 1
            yield {
                "category": category,
                **algorithm._asdict(),
                "score": score,
                "value": found.value[column],
                "low": found.low[column],
                "high": found.high[column],
                **provenance(bootstrap, (len(values), tasks), found.method[column]),
            }


class Curve(NamedTuple):
    """Success of an algorithm in one phase, of one split and category.

    Attributes:
        points: length of the run at each evaluation, from the beginning of its first phase,
            (points,).
        runs: success of each run, (seeds, points).
        mean: over the runs, (points,).
    """

    algorithm: Algorithm
    points: Matrix
    runs: Matrix
    mean: Matrix


Panel = tuple[str, str]
"""Split and category."""


def curves(phase: OnePhase, goal_space: str) -> dict[Panel, list[Curve]]:
    """Success in a phase: for each split and category a curve of each algorithm that has runs."""
    results = phase.results
    if goal_space not in results.goal_spaces:
        return {}
    points = evaluation_points(results, goal_space) + phase.begins
    found: dict[Panel, list[Curve]] = {}
    for split in SPLITS:
        for algorithm in results.algorithms_in(goal_space):
            cube = success_curves(results, algorithm, goal_space, split)
            for column, category in enumerate(evaluated_categories(results, goal_space, split)):
                runs = cube[:, column]
                curve = Curve(algorithm, points, runs, runs.mean(axis=0))
                found.setdefault((split, category), []).append(curve)
    return found


def is_shared(phase: OnePhase, found: Mapping[Panel, Sequence[Curve]]) -> bool:
    """Whether several algorithms have the very same runs in a phase, because they start from them.

    Equal success alone does not say so: it is 0 wherever nothing is learnt.
    """
    return phase.named and all(
        len(each) > 1 and all(np.array_equal(each[0].runs, other.runs) for other in each[1:])
        for each in found.values()
    )
