"""Goals that a sampler practised over training, with and without exploration, and until mastery.

Tables count the episodes of each category in a window of training, not which of them exploration
chose. Its expected part, by the window's mean epsilon, is subtracted; the rest was chosen by the
sampler's estimates (Gaven et al. 2025, Figure 19).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.intervals import Matrix
from analysis.statistics.mastery import mastery_times
from analysis.statistics.matrices import evaluated_categories, success_curves
from analysis.tables.grid import Algorithm, Run, run_of
from analysis.tables.phases import goals_of_phases, practised_split
from analysis.tables.results import Results, rows_where
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS

FEWEST = 0.02
"""Least exploited share of a window's episodes; windows below it are empty."""
Shares = dict[str, float]


def run_counts(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Episodes of each category in each window of each run.

    Returns:
        Index (seed, end in episodes); columns: the world's categories.
    """
    practice = results.table("practice", **_where(algorithm, goal_space))
    counts = practice.pivot_table(
        index=["seed", "episode"], columns="category", values="n", aggfunc="sum"
    )
    return counts.reindex(columns=list(results.categories.names), fill_value=0).fillna(0)


def until_mastery(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Practice of each run in each evaluated category, and whether the run masters it.

    Returns:
        A row for each category and seed. `mastered`: whether the run masters the category.
        `episode`: episodes of the run at mastery, else at its end, `end`. `practice`: the
        category's episodes over the whole run. `before`: those until `episode`, spread evenly over
        a window of the table.
    """
    split = practised_split(results)
    where = results, algorithm, goal_space, split
    curves, episodes = success_curves(*where), success_curves(*where, column="episode")
    seeds = results.seeds_of(algorithm, goal_space)
    counts = run_counts(results, algorithm, goal_space)
    parts = []
    for column, category in enumerate(evaluated_categories(results, goal_space, split)):
        at, mastered = mastery_times(curves[:, column], episodes[:, column])
        windows = [counts[[category]].loc[seed] for seed in seeds]
        before = [practised_until(*both).item() for both in zip(windows, at, strict=True)]
        rows = pd.DataFrame({"seed": seeds, "mastered": mastered, "episode": at, "before": before})
        rows["end"] = episodes[:, column, -1]
        rows["practice"] = [one.sum().item() for one in windows]
        parts.append(rows.assign(category=category))
    return pd.concat(parts, ignore_index=True)


def of_runs(several: Sequence[Results]) -> pd.DataFrame:
    """`until_mastery` of the runs of experiments, in the first goal space of each.

    Returns:
        Its rows, with `sampler`, `variant` and `identity`. A run that stands in several experiments
        is one of the first.
    """
    parts = []
    for results in several:
        space = results.goal_spaces[0]
        names = {run_of(run): run["identity"] for run in results.manifest["runs"]}
        for algorithm in results.algorithms_in(space):
            rows = until_mastery(results, algorithm, space)
            identities = [names[Run(*algorithm, space, seed)] for seed in rows["seed"]]
            parts.append(rows.assign(**algorithm._asdict(), identity=identities))
    return pd.concat(parts, ignore_index=True).drop_duplicates(["identity", "category"])


def practised_until(windows: pd.DataFrame, episodes: Any) -> Matrix:
    """Practice of a run until each of some numbers of episodes, spread evenly over its windows.

    windows: index: end in episodes, a column for each category.

    Returns: (numbers, categories).
    """
    windows = windows.sort_index()
    ends = np.append(0, windows.index)
    return np.column_stack(
        [np.interp(episodes, ends, np.append(0, column.cumsum())) for _, column in windows.items()]
    )


def by_length(results: Results, where: Mapping[str, str], counts: pd.DataFrame) -> pd.DataFrame:
    """Convert counts in windows of episodes to windows in the unit of the experiment.

    If the unit is not episodes, windows lie between evaluations, whose episodes are known, and the
    episodes of a table window are spread evenly over it.

    Args:
        where: sampler, variant and goal space of the runs.
        counts: index (seed, end in episodes), a column for each category.

    Returns:
        The counts with the index (seed, end in the unit of the experiment).
    """
    if results.unit == "episodes":
        return counts
    evaluations = results.table("evaluation", **where)[["seed", results.unit_column, "episode"]]
    parts = []
    for seed, points in evaluations.drop_duplicates().groupby("seed"):
        points = points.sort_values(results.unit_column)
        practised = practised_until(counts.loc[[seed]].droplevel("seed"), points["episode"])
        ends = [[seed], points[results.unit_column][1:]]
        index = pd.MultiIndex.from_product(ends, names=counts.index.names)
        parts.append(pd.DataFrame(np.diff(practised, axis=0), index, counts.columns))
    return pd.concat(parts)


def _where(algorithm: Algorithm, goal_space: str) -> dict[str, str]:
    return {**algorithm._asdict(), "goal_space": goal_space}


def _pooled(
    results: Results, algorithm: Algorithm, goal_space: str, counts: pd.DataFrame
) -> pd.DataFrame:
    """Counts in windows of the experiment's unit, all seeds together."""
    return by_length(results, _where(algorithm, goal_space), counts).groupby("episode").sum()


def window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the categories in each window, all seeds pooled.

    Returns:
        Window ends in the unit of the experiment, (windows,), and shares in the order of the
        world's categories, (categories, windows); NaN in windows without episodes.
    """
    counts = _pooled(results, algorithm, goal_space, run_counts(results, algorithm, goal_space))
    return counts.index.to_numpy(), _shares(counts)


def exploited_window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """The same for episodes that exploration did not choose: an estimate, within 0 and 1.

    NaN in windows with hardly any, and everywhere if the draws of exploration are unknown.
    """
    where = results, algorithm, goal_space
    practised, exploited = _pooled(*where, run_counts(*where)), exploited_counts(*where)
    if exploited is None:
        return practised.index.to_numpy(), np.full(practised.T.shape, np.nan)
    pooled = _pooled(*where, exploited)
    shares = _shares(pooled.clip(lower=0.0))
    shares[:, pooled.sum(axis=1) < FEWEST * practised.sum(axis=1)] = np.nan
    return practised.index.to_numpy(), shares


def exploited_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> pd.DataFrame | None:
    """Shares over the whole training of episodes that exploration did not choose.

    These are estimates: a share may be slightly below 0. None for samplers whose exploration is
    unknown.

    Returns:
        (seeds, categories).
    """
    exploited = exploited_counts(results, algorithm, goal_space)
    if exploited is None:
        return None
    totals = exploited.groupby("seed").sum()
    return totals.div(totals.sum(axis=1), axis=0)


def exploited_counts(
    results: Results, algorithm: Algorithm, goal_space: str
) -> pd.DataFrame | None:
    """`run_counts` minus the expected draws of exploration; None if these are unknown.

    Epsilon is that of the rows of `training`, so that it is unknown for a run without any.
    """
    explored = explored_shares(results, algorithm, goal_space)
    training = results.table("training", **_where(algorithm, goal_space))
    recorded = set(training["seed"]) == set(results.seeds_of(algorithm, goal_space))
    if explored is None or not recorded:
        return None
    parts = []
    for seed, run in run_counts(results, algorithm, goal_space).groupby("seed"):
        ends = run.index.get_level_values("episode").to_numpy()
        episodes = epsilon(rows_where(training, seed=seed), ends) * run.sum(axis=1).to_numpy()
        parts.append(run - episodes[:, None] * np.array([explored[name] for name in run.columns]))
    return pd.concat(parts)


def _shares(counts: pd.DataFrame) -> np.ndarray:
    """Counts (windows, categories) divided by the total of each window, transposed."""
    return counts.div(counts.sum(axis=1), axis=0).to_numpy(dtype=np.float64).T


def explored_shares(results: Results, algorithm: Algorithm, goal_space: str) -> Shares | None:
    """Share of each category among the goals that exploration draws; None if unknown."""
    spec, counts = SAMPLERS.get(algorithm.sampler), goal_counts(results, algorithm, goal_space)
    if spec is None or counts is None:
        return None
    explored = set()
    for config in (run["config"] for run in results.manifests_of(algorithm)):
        estimator = (config.get("samplers") or {}).get("estimator") or spec.estimator
        settings = spec.settings.model_construct(**config.get(spec.section, {}))
        explored.add(spec.explored(settings, estimator))
    if explored == {"categories"}:
        counts = {name: int(count > 0) for name, count in counts.items()}
    elif explored != {"goals"}:
        return None
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def goal_counts(results: Results, algorithm: Algorithm, goal_space: str) -> dict[str, int] | None:
    """Number of goals of each category in the goal space of the runs' last phase.

    From the manifest; for older runs from their world, None if it is not registered.
    """
    run = next(run for run in results.manifests_of(algorithm) if run["goal_space"] == goal_space)
    counts, names = run.get("goal_counts"), results.categories.names
    world = WORLDS.get(run["config"].get("world", DEFAULT_WORLD))
    if not counts:
        if world is None:
            return None
        sizes = world.parse(goals_of_phases(run["config"])[-1].goal_space)
        counts = dict(zip(names, sizes, strict=True))
    return {name: counts.get(name, 0) for name in names}


def epsilon(training: pd.DataFrame, ends: np.ndarray) -> np.ndarray:
    """Mean epsilon of the windows that end at these episodes: (windows,)."""
    episodes, values = training["episode"].to_numpy(), training["epsilon"].to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    points = np.linspace(starts, ends, 21)
    return np.interp(points, episodes, values).mean(axis=0)
