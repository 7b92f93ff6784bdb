"""What a sampler handed out, over training; and what of it was not exploration.

Tables say how many episodes of each category a window of training had, not which of them the
epsilon part chose. That part is known on average: with the mean epsilon of a window it is taken
off. What is left was chosen by what the sampler estimates (Gaven et al. 2025, Figure 19).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.grid import EXPLORING_CATEGORIES, EXPLORING_GOALS, Algorithm, run_of
from analysis.results import Results, rows_where
from magellan.worlds import DEFAULT_WORLD, WORLDS

FEWEST = 0.02
"""Share of a window's episodes that must be left for shares of them."""
Shares = dict[str, float]


def window_counts(results: Results, algorithm: Algorithm, goal_space: str) -> pd.DataFrame:
    """Episodes of each category in each window of each run.

    Runs whose budget is no number of episodes end in the middle of a window, each in another place:
    only windows that all of them have.

    Returns:
        A row for each seed and window, index (seed, end in episodes); columns: the world's
        categories.
    """
    frame = results.table("practice", **algorithm._asdict(), goal_space=goal_space)
    if results.unit != "episodes":
        window = results.manifest["runs"][0]["config"]["budget"]["practice_window"]
        frame = frame.assign(episode=(-(-frame["episode"] // window)).clip(lower=1) * window)
        frame = frame[frame["episode"] <= frame.groupby("seed")["episode"].max().min()]
    counts = frame.pivot_table(
        index=["seed", "episode"], columns="category", values="n", aggfunc="sum"
    )
    return counts.reindex(columns=list(results.categories.names), fill_value=0).fillna(0)


def window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the categories in each window, all seeds together.

    Returns:
        Window ends in episodes, (windows,), and shares in the order of the world's,
        (categories, windows); NaN in a window without episodes.
    """
    counts = window_counts(results, algorithm, goal_space).groupby("episode").sum()
    return counts.index.to_numpy(), _shares(counts.to_numpy(dtype=np.float64).T)


def exploited_window_shares(
    results: Results, algorithm: Algorithm, goal_space: str
) -> tuple[np.ndarray, np.ndarray]:
    """The same of the episodes that exploration did not choose; an estimate, within 0 and 1.

    NaN in windows that leave hardly any.
    """
    counts = window_counts(results, algorithm, goal_space)
    explored = _explored(results, algorithm, goal_space, counts)
    left = (counts - explored).groupby("episode").sum()
    shares = _shares(np.maximum(left.to_numpy(dtype=np.float64), 0.0).T)
    practised = counts.groupby("episode").sum().to_numpy().sum(axis=1)
    shares[:, left.to_numpy().sum(axis=1) < FEWEST * practised] = np.nan
    return left.index.to_numpy(), shares


def _shares(counts: np.ndarray) -> np.ndarray:
    """Counts (categories, windows) by the total of each window."""
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(axis=0)


def _explored(
    results: Results, algorithm: Algorithm, goal_space: str, counts: pd.DataFrame
) -> pd.DataFrame:
    """Episodes that the epsilon part is expected to have chosen, as `window_counts`."""
    drawn = explored_shares(results, algorithm, goal_space)
    assert drawn is not None
    training = results.table("training", goal_space=goal_space, **algorithm._asdict())
    parts = []
    for seed, mine in counts.groupby("seed"):
        ends = mine.index.get_level_values("episode").to_numpy()
        share = epsilon(rows_where(training, seed=seed), ends)
        episodes = share * mine.sum(axis=1).to_numpy()
        parts.append(
            pd.DataFrame(
                episodes[:, None] * np.array([drawn[name] for name in mine.columns]),
                index=mine.index,
                columns=mine.columns,
            )
        )
    return pd.concat(parts)


def explored_shares(results: Results, algorithm: Algorithm, goal_space: str) -> Shares | None:
    """Share of each category among the goals that exploration draws; None if that is not known."""
    mix = mix_of(results, goal_space)
    if mix is None:
        return None
    if explores_goals(results, algorithm):
        return mix
    if algorithm.sampler in EXPLORING_CATEGORIES:
        filled = sum(share > 0 for share in mix.values())
        return {name: float(share > 0) / filled for name, share in mix.items()}
    return None


def mix_of(results: Results, goal_space: str) -> Shares | None:
    """Share of each category in the goal space, where its world is at hand."""
    name = results.manifest["runs"][0]["config"].get("world", DEFAULT_WORLD)
    if name not in WORLDS:
        return None
    sizes = WORLDS[name].parse(goal_space)
    return {
        category: size / sum(sizes)
        for category, size in zip(results.categories.names, sizes, strict=True)
    }


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
