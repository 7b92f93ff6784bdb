"""Print how many environment steps per second the vector version of Little-Zoo does on one core.

Random actions, every episode a fresh random goal of the raw training space, observations and
possible actions written at every step, resets included:

    OMP_NUM_THREADS=1 python -m benchmarks.littlezoo_speed
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from magellan.littlezoo import LittleZooVector


def random_play(
    num_envs: int, steps: int, seed: int, clock: Callable[[], float] = time.perf_counter
) -> float:
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


def main() -> None:
    """Measure a few times and print each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    for repeat in range(arguments.repeats):
        rate = random_play(arguments.num_envs, arguments.steps, seed=repeat)
        print(f"{arguments.num_envs} environments: {rate:,.0f} steps/s")


if __name__ == "__main__":
    main()
