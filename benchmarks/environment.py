"""Environment steps per second of the vector version of Little-Zoo on one core.

Random actions, every episode a fresh random goal of the raw training space, observations and
possible actions written at every step, resets included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.effort import Effort
from benchmarks.rows import Row
from benchmarks.timing import Clock
from magellan.worlds.little_zoo import LittleZooVector

NUM_ENVS = 64


def random_play(num_envs: int, steps: int, seed: int, clock: Clock = time.perf_counter) -> float:
    """Play about `steps` environment steps at random; return environment steps per second."""
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
