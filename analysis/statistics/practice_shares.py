"""What a sampler handed out, over training; and what of it was not exploration.

Tables say how many episodes of each category a window of training had, not which of them the
epsilon part chose. That part is known on average: with the mean epsilon of a window it is taken
off. What is left was chosen by what the sampler estimates (Gaven et al. 2025, Figure 19).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.grid import EXPLORING_CATEGORIES, EXPLORING_GOALS, Algorithm, run_of
from analysis.tables.phases import goals_of_phases
from analysis.tables.results import Results, rows_where
from magellan.worlds import DEFAULT_WORLD, WORLDS

FEWEST = 0.02
"""Share of a window's episodes that must be left for shares of them."""
Shares = dict[str, float]


def run_counts(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Episodes of each category in each window of each run.

    Returns:
        A row for each seed and window, index (seed, end in episodes); columns: the world's
        categories.
    """
    return _by_window(results, results.table("practice", **_where(algorithm, goal_space)))


def by_length(results: Results, where: Mapping[str, str], counts: pd.DataFrame) -> pd.DataFrame:
    """Counts of windows of episodes as those of windows of what the experiment counts.

    Where that is no number of episodes, windows lie between evaluations, whose episodes are known;
    the episodes of a window of the table are spread evenly over it.

    Args:
        results: whose runs they are.
        where: sampler, variant and goal space of the runs.
        counts: index (seed, end in episodes), a column for each category.

    Returns:
        The same with the index (seed, end in what the experiment counts).
    """
    if results.unit == "episodes":
        return counts
    evaluations = results.table("evaluation", **where)[["seed", results.at, "episode"]]
    parts = []
    for seed, looks in evaluations.drop_duplicates().groupby("seed"):
        looks = looks.sort_values(results.at)
        mine = counts.loc[[seed]].droplevel("seed").sort_index()
        so_far = np.vstack([np.zeros(mine.shape[1]), mine.to_numpy().cumsum(axis=0)])
        ends = np.concatenate([[0], mine.index.to_numpy()])
        there = [np.interp(looks["episode"], ends, column) for column in so_far.T]
        index = pd.MultiIndex.from_product(
            [[seed], looks[results.at][1:]], names=counts.index.names
        )
        parts.append(pd.DataFrame(np.diff(there).T, index=index, columns=mine.columns))
    return pd.concat(parts)


def _where(algorithm: Algorithm, goal_space: str) -> dict[str, str]:
    return {**algorithm._asdict(), "goal_space": goal_space}


def _by_window(results: Results, practice: pd.DataFrame) -> pd.DataFrame:
    counts = practice.pivot_table(
        index=["seed", "episode"], columns="category", values="n", aggfunc="sum"
    )
    return counts.reindex(columns=list(results.categories.names), fill_value=0).fillna(0)


def window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the categories in each window, all seeds together.

    Returns:
        Window ends in what the experiment counts, (windows,), and shares in the order of the
        world's categories, (categories, windows); NaN in a window without episodes.
    """
    where = _where(algorithm, goal_space)
    counts = by_length(results, where, run_counts(results, algorithm, goal_space))
    counts = counts.groupby("episode").sum()
    return counts.index.to_numpy(), _shares(counts.to_numpy(dtype=np.float64).T)


def exploited_window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """The same of the episodes that exploration did not choose; an estimate, within 0 and 1.

    NaN in windows that leave hardly any, and everywhere if it is not known what exploration draws.
    """
    counts, where = run_counts(results, algorithm, goal_space), _where(algorithm, goal_space)
    practised = by_length(results, where, counts).groupby("episode").sum()
    left = exploited_counts(results, algorithm, goal_space, counts)
    if left is None:
        return practised.index.to_numpy(), np.full(practised.T.shape, np.nan)
    left = by_length(results, where, left)
    together = left.groupby("episode").sum().to_numpy(dtype=np.float64)
    shares = _shares(np.maximum(together, 0.0).T)
    shares[:, together.sum(axis=1) < FEWEST * practised.to_numpy().sum(axis=1)] = np.nan
    return practised.index.to_numpy(), shares


def exploited_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> pd.DataFrame | None:
    """Shares over the whole training of the episodes that exploration did not choose.

    That is an estimate, so a share may come out a little below 0. None for samplers of which it is
    not known how they explore.

    Returns:
        (seeds, categories).
    """
    counts = run_counts(results, algorithm, goal_space)
    left = exploited_counts(results, algorithm, goal_space, counts)
    if left is None:
        return None
    totals = left.groupby("seed").sum()
    return totals.div(totals.sum(axis=1), axis=0)


def exploited_counts(
    results: Results, algorithm: Algorithm, goal_space: str, counts: pd.DataFrame
) -> pd.DataFrame | None:
    """Counts (seed and window, category) without what exploration is expected to have chosen."""
    drawn = explored_shares(results, algorithm, goal_space)
    if drawn is None:
        return None
    training = results.table("training", **_where(algorithm, goal_space))
    parts = []
    for seed, mine in counts.groupby("seed"):
        ends = mine.index.get_level_values("episode").to_numpy()
        share = epsilon(rows_where(training, seed=seed), ends)
        episodes = share * mine.sum(axis=1).to_numpy()
        parts.append(mine - episodes[:, None] * np.array([drawn[name] for name in mine.columns]))
    return pd.concat(parts)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Counts (categories, windows) by the total of each window."""
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(axis=0)


def explored_shares(results: Results, algorithm: Algorithm, goal_space: str) -> Shares | None:
    """Share of each category among the goals that exploration draws; None if that is not known."""
    mix = mix_of(results, algorithm, goal_space)
    if mix is None:
        return None
    if explores_goals(results, algorithm):
        return mix
    if algorithm.sampler in EXPLORING_CATEGORIES:
        filled = sum(share > 0 for share in mix.values())
        return {name: float(share > 0) / filled for name, share in mix.items()}
    return None


def mix_of(results: Results, algorithm: Algorithm, goal_space: str) -> Shares | None:
    """Share of each category in the goal space of `goal_counts`; None where that is not known."""
    counts = goal_counts(results, algorithm, goal_space)
    if counts is None:
        return None
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def goal_counts(results: Results, algorithm: Algorithm, goal_space: str) -> dict[str, int] | None:
    """Number of goals of each category in the goal space that an algorithm's runs practised last.

    Runs say it. Of older ones it is known where their world is at hand, else None.
    """
    run = next(
        each
        for each in results.manifest["runs"]
        if run_of(each).algorithm == algorithm and each["goal_space"] == goal_space
    )
    counts = run.get("goal_counts") or _counted_by_world(results, run["config"])
    return None if counts is None else {n: counts.get(n, 0) for n in results.categories.names}


def _counted_by_world(results: Results, config: Mapping[str, Any]) -> dict[str, int] | None:
    world, practised = WORLDS.get(config.get("world", DEFAULT_WORLD)), goals_of_phases(config)[-1]
    if world is None:
        return None
    sizes = world.parse(practised.goal_space)
    return dict(zip(results.categories.names, sizes, strict=True))


def explores_goals(results: Results, algorithm: Algorithm) -> bool:
    """Whether a sampler chooses by what it estimates, and explores uniformly over goals."""
    if algorithm.sampler == "ek_online":
        configs = [
            run["config"] for run in results.manifest["runs"] if run_of(run).algorithm == algorithm
        ]
        return all(config["ek_online"]["explore"] == "goals" for config in configs)
    return algorithm.sampler in EXPLORING_GOALS


def epsilon(training: pd.DataFrame, ends: np.ndarray) -> np.ndarray:
    """Mean epsilon of the windows that end at these episodes: (windows,)."""
    at, value = training["episode"].to_numpy(), training["epsilon"].to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    points = np.linspace(starts, ends, 21)
    return np.interp(points, at, value).mean(axis=0)
