"""What a goal sampler's update and its next draw cost, by the size of the goal space.

All windows are full (those of 100,000 goals where there are more), 32 outcomes come at a time, and
every draw chooses by learning progress: epsilon has come to its floor, and that floor is 0.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.effort import Effort
from benchmarks.fresh import SEED, accepted
from benchmarks.rows import Row, Skipped
from magellan.competence import EstimatorParts, Outcomes, make_estimator
from magellan.samplers import SAMPLERS, GoalSampler, SamplerParts, make_sampler
from magellan.samplers.base import ConstantEpsilon
from magellan.worlds.little_zoo import GoalSpace
from magellan.worlds.little_zoo.goals import GoalSet

OUTCOMES = 32
FILLED_AT_MOST = 100_000
GOALS_PER_FILL = 10_000
WINDOW = 100


def filled_sampler(name: str, goals: GoalSet, rng: np.random.Generator) -> GoalSampler:
    """A sampler with full windows of random outcomes.

    MAGELLAN has windows in the place of the language model here: what its update costs is timed
    with the model, and a draw needs the numbers alone.
    """
    estimator = SAMPLERS[name].estimator
    windows = "expert_buckets" if estimator == "expert_buckets" else "per_goal"
    parts = EstimatorParts(goals, lambda stream: np.random.default_rng([SEED, *stream.encode()]))
    sampler = make_sampler(
        name,
        SamplerParts(
            goals,
            np.random.default_rng(SEED),
            ConstantEpsilon(0.0),
            make_estimator(windows, parts) if estimator else None,
        ),
    )
    if sampler.estimator is None:
        return sampler
    practised = rng.choice(
        len(goals), min(len(goals), FILLED_AT_MOST), replace=False, shuffle=False
    )
    for start in range(0, len(practised), GOALS_PER_FILL):
        played = np.tile(practised[start : start + GOALS_PER_FILL], WINDOW)
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
            if SAMPLERS[name].estimator != "learned":
                yield Row(f"{name}: update, {OUTCOMES} outcomes", 1e3 * update, "ms", n, size=size)
            yield Row(f"{name}: draw one goal", 1e3 * draw, "ms", n, size=size)
