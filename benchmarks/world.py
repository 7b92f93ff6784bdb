"""Little-Zoo and the goal samplers on one core, without a language model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.effort import Effort
from benchmarks.rows import Row
from benchmarks.timing import SEED, in_fresh_process
from magellan.competence import EstimatorParts, Outcomes, make_estimator
from magellan.samplers import SAMPLERS, GoalSampler, SamplerParts, make_sampler
from magellan.samplers.base import ConstantEpsilon
from magellan.worlds.little_zoo import GoalSpace, LittleZooVector
from magellan.worlds.little_zoo.goals import GoalSet

NUM_ENVS = 64
OUTCOMES = 32
FILLED_AT_MOST = 100_000
GOALS_PER_FILL = 10_000
WINDOW = 100


def random_play(
    num_envs: int, steps: int, seed: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Environment steps per second of random play over about `steps` steps.

    Every episode has a new random goal of the raw training space; every step, resets included,
    writes observations and possible actions.
    """
    env, rng = LittleZooVector(num_envs), np.random.default_rng(seed)
    _, infos = env.reset(seed=seed)
    rounds = steps // num_envs
    start = clock()
    for _ in range(rounds):
        counts = np.fromiter(map(len, infos["possible_actions"]), dtype=np.int64, count=num_envs)
        actions = (rng.random(num_envs) * counts).astype(np.int64)
        _, _, terminations, truncations, infos = env.step(actions)
        ended = terminations | truncations
        if ended.any():
            _, infos = env.reset(options={"reset_mask": ended})
    return rounds * num_envs / (clock() - start)


def environment_rows(effort: Effort) -> Iterator[Row]:
    """Random play in `NUM_ENVS` environments."""
    repetitions = effort.environment_repetitions
    rates = [random_play(NUM_ENVS, effort.environment_steps, seed) for seed in range(repetitions)]
    yield Row("random play, resets included", statistics.median(rates), "steps/s", repetitions)


def goal_rows(effort: Effort) -> Iterator[Row]:
    """Build time of the 25k goal space, without imports, and peak memory of its process."""
    n, name = effort.goal_repetitions, "25k"
    figures = [in_fresh_process("goals", name) for _ in range(n)]
    seconds, peak = (
        statistics.median(figure[key] for figure in figures) for key in ("seconds", "peak_mb")
    )
    yield Row("goal space: build", seconds, "s", n, size=name)
    yield Row("goal space: peak memory of a process", peak, "MB", n, size=name)


def filled_sampler(name: str, goals: GoalSet, rng: np.random.Generator) -> GoalSampler:
    """A sampler with full windows of random outcomes, of 100,000 goals at most, and epsilon 0."""
    parts = EstimatorParts(goals, lambda stream: np.random.default_rng([SEED, *stream.encode()]))
    estimator = make_estimator(SAMPLERS[name].estimator or "", parts)
    rng_of_draws = np.random.default_rng(SEED)
    sampler = make_sampler(name, SamplerParts(goals, rng_of_draws, ConstantEpsilon(0.0), estimator))
    number = min(len(goals), FILLED_AT_MOST)
    practised = rng.choice(len(goals), number, replace=False, shuffle=False)
    for start in range(0, number, GOALS_PER_FILL):
        played = np.tile(practised[start : start + GOALS_PER_FILL], WINDOW)
        sampler.update(Outcomes(played, rng.integers(0, 2, len(played))))
    return sampler


def median_times(
    sampler: GoalSampler, rounds: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Median seconds of an update with 32 outcomes and of the draw after it."""
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


def sampler_rows(effort: Effort) -> Iterator[Row]:
    """Update and draw of the samplers with windows; `model_rows` times MAGELLAN's."""
    n = effort.sampler_rounds
    for size in effort.sampler_spaces:
        goals = GoalSpace.named(size, SEED)
        for name in ("online", "ek_online"):
            rng = np.random.default_rng(1)
            update, draw = median_times(filled_sampler(name, goals, rng), n, rng)
            yield Row(f"{name}: update, {OUTCOMES} outcomes", 1e3 * update, "ms", n, size=size)
            yield Row(f"{name}: draw one goal", 1e3 * draw, "ms", n, size=size)
