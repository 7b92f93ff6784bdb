"""Print what a goal sampler's update and its next draw cost, by the size of the goal space.

All windows full, epsilon at its floor, 32 outcomes per update, then one draw:

    OMP_NUM_THREADS=1 python -m benchmarks.sampler_speed
"""

import argparse
import time

import numpy as np

from magellan.competence import Outcomes
from magellan.littlezoo import GoalSpace, parse_goal_space
from magellan.samplers import GoalSampler, SamplerSettings, make_sampler


def filled_sampler(
    name: str, goals: GoalSpace, window: int, rng: np.random.Generator
) -> GoalSampler:
    """A sampler with a full window of random outcomes on every goal, and epsilon at its floor."""
    settings = SamplerSettings(epsilon_start=0.2, epsilon_end=0.2, window=window)
    sampler = make_sampler(name, goals, np.random.default_rng(0), settings)
    for _ in range(window):
        practised = rng.permutation(len(goals))
        sampler.update(Outcomes(practised, rng.integers(0, 2, len(goals))))
    return sampler


def median_seconds(sampler: GoalSampler, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Median wall time of an update with 32 outcomes and of the draw after it, (2,) seconds."""
    times = []
    for _ in range(rounds):
        outcomes = Outcomes(sampler.sample(32), rng.integers(0, 2, 32))
        start = time.perf_counter()
        sampler.update(outcomes)
        updated = time.perf_counter()
        sampler.sample(1)
        times.append((updated - start, time.perf_counter() - updated))
    return np.median(times, axis=0)


def main() -> None:
    """Measure each sampler that needs no language model at each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["25k", "50k", "100k"])
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1_000)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        goals = GoalSpace.draw(parse_goal_space(size), seed=0)
        for name in ("random", "online", "ek_online"):
            rng = np.random.default_rng(1)
            sampler = filled_sampler(name, goals, arguments.window, rng)
            update, draw = 1e3 * median_seconds(sampler, arguments.rounds, rng)
            print(f"{name:10} {len(goals):7} goals   update {update:.4f} ms   draw {draw:.4f} ms")


if __name__ == "__main__":
    main()
