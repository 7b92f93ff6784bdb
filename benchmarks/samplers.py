"""What a goal sampler's update and its next draw cost, by the size of the goal space.

All windows are full (those of 100,000 goals where there are more), 32 outcomes come at a time, and
every draw chooses by learning progress: epsilon has come to its floor, and that floor is 0.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.fresh import SEED, accepted
from benchmarks.rows import Row, Skipped
from magellan.competence import CompetenceEstimator, Outcomes
from magellan.littlezoo import CATEGORIES, GoalSpace
from magellan.samplers import GoalSampler, SamplerSettings, make_sampler

OUTCOMES = 32
FILLED_AT_MOST = 100_000
GOALS_PER_FILL = 10_000
SETTINGS = SamplerSettings(epsilon_start=0.0, epsilon_end=0.0)


class FixedCompetence(CompetenceEstimator):
    """Random numbers in the place of a language model's, which cost nothing and never change."""

    def __init__(self, n_goals: int, rng: np.random.Generator) -> None:
        self._now, self._delayed = rng.random(n_goals), rng.random(n_goals)

    def update(self, outcomes: Outcomes) -> None:
        """Learn nothing."""

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers drawn at the start."""
        return self._now, self._delayed

    def changed_arms(self) -> np.ndarray:
        """None."""
        return np.zeros(0, np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


def practised_goals(name: str, goals: GoalSpace, rng: np.random.Generator) -> np.ndarray:
    """Goals whose outcomes fill the windows: every goal, or some of each category; int64 (m,)."""
    if name == "ek_online":
        members = [goals.members(category) for category in CATEGORIES]
        return np.concatenate([positions[: SETTINGS.window] for positions in members])
    if len(goals) <= FILLED_AT_MOST:
        return rng.permutation(len(goals))
    return rng.choice(len(goals), FILLED_AT_MOST, replace=False, shuffle=False)


def filled_sampler(name: str, goals: GoalSpace, rng: np.random.Generator) -> GoalSampler:
    """A sampler with full windows of random outcomes."""
    learned = FixedCompetence(len(goals), rng) if name == "magellan" else None
    sampler = make_sampler(name, goals, np.random.default_rng(SEED), SETTINGS, learned)
    if name in ("random", "magellan"):
        return sampler
    practised = practised_goals(name, goals, rng)
    for start in range(0, len(practised), GOALS_PER_FILL):
        played = np.tile(practised[start : start + GOALS_PER_FILL], SETTINGS.window)
        sampler.update(Outcomes(played, rng.integers(0, 2, len(played))))
    return sampler


def median_times(
    sampler: GoalSampler, rounds: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Median wall time of an update with 32 outcomes and of the draw after it, in seconds."""
    updates, draws = [], []
    for _ in range(rounds):
        outcomes = Outcomes(sampler.sample(OUTCOMES), rng.integers(0, 2, OUTCOMES))
        start = time.perf_counter()
        sampler.update(outcomes)
        updated = time.perf_counter()
        sampler.sample(1)
        updates.append(updated - start)
        draws.append(time.perf_counter() - updated)
    return statistics.median(updates), statistics.median(draws)


def sampler_rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Update and draw of every sampler; MAGELLAN's update is that of the model, timed with it."""
    for size in effort.sampler_spaces:
        if not accepted(size):
            yield Skipped(f"samplers on {size}", "this version has no goal space of that name")
            continue
        goals = GoalSpace.named(size, SEED)
        for name in ("random", "online", "ek_online", "magellan"):
            rng = np.random.default_rng(1)
            sampler = filled_sampler(name, goals, rng)
            update, draw = median_times(sampler, effort.sampler_rounds, rng)
            n = effort.sampler_rounds
            if name != "magellan":
                yield Row(f"{name}: update, {OUTCOMES} outcomes", 1e3 * update, "ms", n, size=size)
            yield Row(f"{name}: draw one goal", 1e3 * draw, "ms", n, size=size)
