"""Goals that a sampler practised over training, with and without exploration.

Tables count the episodes of each category in a window of training, not which of them exploration
chose. Its expected part, by the window's mean epsilon, is subtracted; the rest was chosen by the
sampler's estimates (Gaven et al. 2025, Figure 19).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.grid import EXPLORING_CATEGORIES, EXPLORING_GOALS, Algorithm
from analysis.tables.phases import goals_of_phases
from analysis.tables.results import Results, rows_where
from magellan.worlds import DEFAULT_WORLD, WORLDS

FEWEST = 0.02
"""Least exploited share of a window's episodes; windows below it are empty."""
Shares = dict[str, float]


def run_counts(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Episodes of each category in each window of each run.

    Returns:
        A row for each seed and window, index (seed, end in episodes); columns: the world's
        categories.
    """
    practice = results.table("practice", **_where(algorithm, goal_space))
    counts = practice.pivot_table(
        index=["seed", "episode"], columns="category", values="n", aggfunc="sum"
    )
    return counts.reindex(columns=list(results.categories.names), fill_value=0).fillna(0)


def by_length(results: Results, where: Mapping[str, str], counts: pd.DataFrame) -> pd.DataFrame:
    """Convert counts in windows of episodes to windows in the unit of the experiment.

    If the unit is not episodes, windows lie between evaluations, whose episodes are known, and the
    episodes of a table window are spread evenly over it.

    Args:
        results: combined tables.
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
        windows = counts.loc[[seed]].droplevel("seed").sort_index()
        totals = np.vstack([np.zeros(windows.shape[1]), windows.to_numpy().cumsum(axis=0)])
        ends = np.concatenate([[0], windows.index.to_numpy()])
        at_points = [np.interp(points["episode"], ends, column) for column in totals.T]
        index = pd.MultiIndex.from_product(
            [[seed], points[results.unit_column][1:]], names=counts.index.names
        )
        parts.append(pd.DataFrame(np.diff(at_points).T, index=index, columns=windows.columns))
    return pd.concat(parts)


def _where(algorithm: Algorithm, goal_space: str) -> dict[str, str]:
    return {**algorithm._asdict(), "goal_space": goal_space}


def window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the categories in each window, all seeds pooled.

    Returns:
        Window ends in the unit of the experiment, (windows,), and shares in the order of the
        world's categories, (categories, windows); NaN in windows without episodes.
    """
    where = _where(algorithm, goal_space)
    counts = by_length(results, where, run_counts(results, algorithm, goal_space))
    counts = counts.groupby("episode").sum()
    return counts.index.to_numpy(), _shares(counts)


def exploited_window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """The same for episodes that exploration did not choose: an estimate, within 0 and 1.

    NaN in windows with hardly any, and everywhere if the draws of exploration are unknown.
    """
    where = _where(algorithm, goal_space)
    counts = by_length(results, where, run_counts(results, algorithm, goal_space))
    practised = counts.groupby("episode").sum()
    exploited = exploited_counts(results, algorithm, goal_space)
    if exploited is None:
        return practised.index.to_numpy(), np.full(practised.T.shape, np.nan)
    pooled = by_length(results, where, exploited).groupby("episode").sum()
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
    counts = goal_counts(results, algorithm, goal_space)
    if counts is None:
        return None
    if explores_goals(results, algorithm):
        return {name: count / sum(counts.values()) for name, count in counts.items()}
    if algorithm.sampler in EXPLORING_CATEGORIES:
        filled = sum(count > 0 for count in counts.values())
        return {name: float(count > 0) / filled for name, count in counts.items()}
    return None


def goal_counts(results: Results, algorithm: Algorithm, goal_space: str) -> dict[str, int] | None:
    """Number of goals of each category in the goal space of the runs' last phase.

    From the manifest; for older runs from their world, None if it is not registered.
    """
    run = next(run for run in results.manifests_of(algorithm) if run["goal_space"] == goal_space)
    counts = run.get("goal_counts") or _counts_of_world(results, run["config"])
    return None if counts is None else {n: counts.get(n, 0) for n in results.categories.names}


def _counts_of_world(results: Results, config: Mapping[str, Any]) -> dict[str, int] | None:
    world, practised = WORLDS.get(config.get("world", DEFAULT_WORLD)), goals_of_phases(config)[-1]
    if world is None:
        return None
    sizes = world.parse(practised.goal_space)
    return dict(zip(results.categories.names, sizes, strict=True))


def explores_goals(results: Results, algorithm: Algorithm) -> bool:
    """Whether a sampler chooses by its estimates and explores uniformly over goals."""
    if algorithm.sampler == "ek_online":
        configs = [run["config"] for run in results.manifests_of(algorithm)]
        return all(config["ek_online"]["explore"] == "goals" for config in configs)
    return algorithm.sampler in EXPLORING_GOALS


def epsilon(training: pd.DataFrame, ends: np.ndarray) -> np.ndarray:
    """Mean epsilon of the windows that end at these episodes: (windows,)."""
    episodes, values = training["episode"].to_numpy(), training["epsilon"].to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    points = np.linspace(starts, ends, 21)
    return np.interp(points, episodes, values).mean(axis=0)
