"""Time to mastery of every category, and whether the reference's differs from the others'."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.statistics import intervals, significance, survival
from analysis.statistics.intervals import Bootstrap
from analysis.statistics.matrices import (
    Row,
    algorithms_of,
    bootstrap_of,
    evaluated_categories,
    evaluation_points,
    provenance,
    success_curves,
)
from analysis.statistics.registry import register_statistic
from analysis.statistics.survival import Times
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results

MASTERY_COLUMNS = (
    "goal_space",
    "split",
    "category",
    "sampler",
    "variant",
    "runs",
    "mastered",
    "restricted_mean",
    "low",
    "high",
    "median",
    "limit",
    "log_rank",
    "p",
    "p_holm",
    "method",
    "repetitions",
    "confidence",
)
FAMILY = ["goal_space", "split", "category"]


def times_of(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Times]:
    """Category -> times to mastery of an algorithm's runs, and which are not censored."""
    curves = success_curves(results, algorithm, goal_space, split)
    points = evaluation_points(results, goal_space)
    return {
        category: survival.mastery_times(curves[:, at], points)
        for at, category in enumerate(evaluated_categories(results, goal_space, split))
    }


@register_statistic("mastery")
def mastery(results: Results) -> pd.DataFrame:
    """Runs that master each category, and how long it takes, of every algorithm.

    Times are in the unit of the experiment, episodes by default.
    `restricted_mean`: mean time to mastery, where a run without it counts as `limit`, the last
    evaluation; its interval is over whole runs. `median`: when half of the runs have mastered;
    empty if never. `log_rank`, `p`, `p_holm` (corrected over the others of a category): the
    reference against this algorithm; empty for the reference itself.
    """
    bootstrap = bootstrap_of(results)
    rows: list[Row] = []
    for goal_space, split, algorithm in algorithms_of(results):
        limit = float(evaluation_points(results, goal_space)[-1])
        reference = _reference_times(results, algorithm, goal_space, split)
        for category, times in times_of(results, algorithm, goal_space, split).items():
            rows.append(
                {
                    "goal_space": goal_space,
                    "split": split,
                    "category": category,
                    **algorithm._asdict(),
                    **_described(times, limit, bootstrap),
                    **_tested(reference.get(category), times),
                }
            )
    frame = pd.DataFrame(rows, columns=list(MASTERY_COLUMNS))
    frame["p_holm"] = frame.groupby(FAMILY)["p"].transform(
        lambda p: significance.holm(p.to_numpy())
    )
    return frame


def _reference_times(
    results: Results, algorithm: Algorithm, goal_space: str, split: str
) -> dict[str, Times]:
    """Those of the reference; none for the reference itself, or where it has no run."""
    reference = results.reference
    if algorithm == reference or reference not in results.algorithms_in(goal_space):
        return {}
    return times_of(results, reference, goal_space, split)


def _described(times: Times, limit: float, bootstrap: Bootstrap) -> Row:
    values, mastered = times
    found = intervals.mean_estimate(values[:, None], bootstrap, (0.0, limit))
    steps = survival.kaplan_meier(values, mastered)
    made = provenance(bootstrap, (len(values), 1), found.method[0])
    return {
        **{key: value for key, value in made.items() if key != "tasks"},
        "mastered": int(mastered.sum()),
        "restricted_mean": survival.restricted_mean(steps, limit),
        "low": found.low[0],
        "high": found.high[0],
        "median": survival.median_time(steps),
        "limit": limit,
    }


def _tested(reference: Times | None, times: Times) -> Row:
    if reference is None:
        return {"log_rank": np.nan, "p": np.nan}
    found = survival.log_rank(reference, times)
    return {"log_rank": found.statistic, "p": found.p}
