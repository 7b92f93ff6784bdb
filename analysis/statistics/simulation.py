"""Simulate the coverage of intervals: `python -m analysis.statistics.simulation`.

Simulated runs resemble the observed ones: a run either breaks through and does well on all long
categories, or gets stuck and is better at grasping. Experiments of n runs are drawn from a known
population; an interval covers if it contains the population's value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analysis.statistics import intervals, mastery, matrices
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.tables import printing
from magellan.core.arguments import ArgumentParser, whole_number
from magellan.core.errors import InputError

SIZES = (4, 5, 8, 10, 20)
# Mean success over training on grasp, plant, herbivore, carnivore, as in runs of the small preset.
BROKEN_THROUGH = np.array([0.42, 0.75, 0.70, 0.66])
STUCK = np.array([0.55, 0.60, 0.03, 0.01])
NOISE = 0.05
LEVEL = 0.5
POPULATION = 200_000

Sampler = Callable[[np.random.Generator, int], Matrix]


class World(NamedTuple):
    """Two samplers with known distributions; each maps a count to runs, (count, 4)."""

    name: str
    first: Sampler
    second: Sampler


def bimodal(chance: float) -> Sampler:
    """Runs that break through with this probability."""
    return lambda rng, count: _runs((rng.random(count) < chance).astype(float), rng)


def graded(highest: float) -> Sampler:
    """Runs with progress uniform between 0 and `highest`."""
    return lambda rng, count: _runs(rng.random(count) * highest, rng)


def _runs(progress: Matrix, rng: np.random.Generator) -> Matrix:
    """Scores of runs from their progress between stuck (0) and broken through (1)."""
    scores = STUCK + progress[:, None] * (BROKEN_THROUGH - STUCK)
    return np.clip(scores + NOISE * rng.standard_normal(scores.shape), 0.0, 1.0)


WORLDS = (
    World("one run in two breaks through", bimodal(0.5), bimodal(0.2)),
    World("one run in five breaks through", bimodal(0.2), bimodal(0.5)),
    World("runs are evenly spread", graded(1.0), graded(0.6)),
)


# --- intervals of many experiments: twice (experiments, runs, 4) to (2, experiments) --------------


def mean_per_category(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The old interval: each category of a run is resampled by itself."""
    tasks = range(first.shape[2])
    means = [_weights(first.shape[1], _reseed(bootstrap, t)) @ first[:, :, t].T for t in tasks]
    return _percentiles(np.mean(means, axis=0), bootstrap)


def mean_percentile(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles of the means of resampled runs."""
    return _percentiles(_weights(first.shape[1], bootstrap) @ first.mean(axis=2).T, bootstrap)


def mean_bca(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles corrected for bias and skew (BCa); percentiles if all runs are equal."""
    from scipy.stats import norm

    values = first.mean(axis=2).T
    drawn = np.sort(_weights(len(values), bootstrap) @ values, axis=0)
    centred = values - values.mean(axis=0)
    below = (drawn < values.mean(axis=0)).mean(axis=0)
    bias = norm.ppf(np.clip(below, 1 / len(drawn), 1 - 1 / len(drawn)))
    skew = (centred**3).sum(axis=0) / (6 * (centred**2).sum(axis=0) ** 1.5)
    bounds = []
    for normal in norm.ppf([bootstrap.tail, 1 - bootstrap.tail]):
        share = norm.cdf(bias + (bias + normal) / (1 - skew * (bias + normal)))
        index = np.round(share * (len(drawn) - 1)).astype(int)
        bounds.append(drawn[index, np.arange(drawn.shape[1])])
    return np.stack(bounds)


def mean_student(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Student's t interval of the run means."""
    from scipy.stats import t

    values = first.mean(axis=2)
    error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    half = t.ppf(1 - bootstrap.tail, values.shape[1] - 1) * error
    return np.stack([values.mean(axis=1) - half, values.mean(axis=1) + half])


def mean_studentised(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    estimate = intervals.mean_estimate(first.mean(axis=2).T, bootstrap)
    return np.stack([estimate.low, estimate.high])


def difference_percentile(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles of differences of the means of resampled runs."""
    sizes = first.shape[1], second.shape[1]
    weights = intervals.resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    means = [scores.mean(axis=2).T for scores in (first, second)]
    return _percentiles(weights[0] @ means[0] - weights[1] @ means[1], bootstrap)


def difference_studentised(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    means = [scores.mean(axis=2).T for scores in (first, second)]
    estimate = intervals.difference_estimate(means[0], means[1], bootstrap)
    return np.stack([estimate.low, estimate.high])


def iqm_per_category(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The old interval: each category of a run is resampled by itself."""
    tasks = range(first.shape[2])
    seeded = (_reseed(bootstrap, task) for task in tasks)
    drawn = [intervals.resample_rows(first.shape[1:2], b.repetitions, b.seed)[0] for b in seeded]
    rows = np.stack(drawn, axis=-1)
    iqms = [matrices.iqm(scores[rows, np.arange(len(tasks))])[:, 0] for scores in first]
    return _percentiles(np.stack(iqms, axis=1), bootstrap)


def iqm_percentile(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    return _bounds([first], matrices.iqm, bootstrap)


def profile_percentile(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use, at one level."""
    above = (first > LEVEL).mean(axis=2).T
    return _percentiles(_weights(len(above), bootstrap) @ above, bootstrap)


def improvement_percentile(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    return _bounds([first, second], matrices.probability_of_improvement, bootstrap)


def _bounds(samples: list[Matrix], function: Callable[..., Matrix], bootstrap: Bootstrap) -> Matrix:
    """Percentile intervals of a statistic, for each experiment: (2, experiments)."""
    experiments = map(list, zip(*samples, strict=True))
    estimates = [intervals.percentile_estimate(runs, function, bootstrap) for runs in experiments]
    return np.array([[estimate.low[0], estimate.high[0]] for estimate in estimates]).T


def _weights(runs: int, bootstrap: Bootstrap) -> Matrix:
    """Share of each run in every resample, (resamples, runs)."""
    return intervals.resample_weights((runs,), bootstrap.repetitions, bootstrap.seed)[0]


def _reseed(bootstrap: Bootstrap, task: int) -> Bootstrap:
    return Bootstrap(bootstrap.repetitions, bootstrap.confidence, bootstrap.seed + 1 + task)


def _percentiles(drawn: Matrix, bootstrap: Bootstrap) -> Matrix:
    return np.quantile(drawn, [bootstrap.tail, 1 - bootstrap.tail], axis=0)


# --- coverage -------------------------------------------------------------------------------------

TRUTHS: dict[str, Callable[[Matrix, Matrix], float]] = {
    "mean": lambda first, second: float(first.mean()),
    "difference of means": lambda first, second: float(first.mean() - second.mean()),
    "IQM": lambda first, second: float(matrices.iqm(first)[0]),
    "profile at 0.5": lambda first, second: float((first > LEVEL).mean()),
    "probability of improvement": lambda first, second: float((first > second).mean()),
}
"""Statistics of two populations, by name."""


class Method(NamedTuple):
    """An interval of a statistic; `used`: whether the tables have it."""

    statistic: str
    name: str
    interval: Callable[[Matrix, Matrix, Bootstrap], Matrix]
    used: bool = True


OLD, WHOLE_RUNS = "percentile, per category (old)", "percentile, whole runs"
STUDENTISED = "studentised, whole runs"
METHODS = (
    Method("mean", OLD, mean_per_category, False),
    Method("mean", WHOLE_RUNS, mean_percentile, False),
    Method("mean", "BCa, whole runs", mean_bca, False),
    Method("mean", "Student t of run means", mean_student, False),
    Method("mean", STUDENTISED, mean_studentised),
    Method("difference of means", WHOLE_RUNS, difference_percentile, False),
    Method("difference of means", STUDENTISED, difference_studentised),
    Method("IQM", OLD, iqm_per_category, False),
    Method("IQM", WHOLE_RUNS, iqm_percentile),
    Method("profile at 0.5", WHOLE_RUNS, profile_percentile),
    Method("probability of improvement", WHOLE_RUNS, improvement_percentile),
)


def coverage(
    method: Method, world: World, runs: int, experiments: int, bootstrap: Bootstrap
) -> float:
    """Share of experiments with `runs` runs per sampler whose interval covers the truth."""
    rng = np.random.default_rng([bootstrap.seed, runs])
    first, second = (
        draw(rng, experiments * runs).reshape(experiments, runs, -1)
        for draw in (world.first, world.second)
    )
    low, high = method.interval(first, second, bootstrap)
    truth = TRUTHS[method.statistic](*population(world))
    slack = intervals.ROUNDING
    return float(((low - slack <= truth) & (truth <= high + slack)).mean())


def population(world: World) -> tuple[Matrix, Matrix]:
    """`POPULATION` runs of both samplers, each (POPULATION, 4)."""
    rng = np.random.default_rng(12345)
    return world.first(rng, POPULATION), world.second(rng, POPULATION)


def false_alarms(world: World, runs: int, experiments: int, seed: int) -> dict[str, float]:
    """Share of p values of 0.05 or less for identical samplers, for each test."""
    rng = np.random.default_rng([seed, runs])
    rejected: dict[str, list[bool]] = {"permutation": [], "log-rank": []}
    for _ in range(experiments):
        scores = world.first(rng, 2 * runs)
        means, times = scores.mean(axis=1), rng.exponential(1.0, 2 * runs)
        p = intervals.permutation_test(means[:runs], means[runs:], seed).p
        rejected["permutation"].append(p <= 0.05)
        mastered = times < 0.7  # about half of the runs
        times = np.minimum(np.ceil(times * 10) / 10, 0.7)
        groups = [(times[rows], mastered[rows]) for rows in (slice(runs), slice(runs, None))]
        rejected["log-rank"].append(mastery.log_rank(*groups).p <= 0.05)
    return {name: float(np.mean(alarms)) for name, alarms in rejected.items()}


# --- the table ------------------------------------------------------------------------------------


def header() -> list[str]:
    """Header of every table."""
    return printing.head(["statistic", "interval", "in use", *(f"n = {n}" for n in SIZES)])


def lines(world: World, experiments: int, bootstrap: Bootstrap) -> Iterator[str]:
    """The table of one world."""
    yield from header()
    for method in METHODS:
        yield row(method, [coverage(method, world, n, experiments, bootstrap) for n in SIZES])


def row(method: Method, coverages: Sequence[float]) -> str:
    """One line of a table."""
    used = "yes" if method.used else "no"
    return printing.row([method.statistic, method.name, used, *(f"{x:.2f}" for x in coverages)])


def alarm_lines(experiments: int, seed: int) -> Iterator[str]:
    """The table of false alarms of both tests."""
    yield from printing.head(["test", *(f"n = {n}" for n in SIZES)])
    by_size = [false_alarms(WORLDS[0], runs, experiments, seed) for runs in SIZES]
    for name in by_size[0]:
        yield printing.row([name, *(f"{alarms[name]:.3f}" for alarms in by_size)])


def main(argv: list[str] | None = None) -> int:
    """Print the tables of docs/studies/coverage.md; status 2 and one line for bad arguments."""
    parser = ArgumentParser(prog="python -m analysis.statistics.simulation", description=__doc__)
    for name, value, text in (
        ("--experiments", 1_000, "simulated experiments of each size"),
        ("--resamples", 1_000, "resamples of each interval"),
        ("--seed", 0, "of all random numbers"),
    ):
        text = f"{text} (default: {value:,})"
        parser.add_argument(name, type=whole_number, default=value, help=text)
    try:
        arguments = parser.parse_args(argv)
        if min(arguments.experiments, arguments.resamples) < 2 or arguments.seed < 0:
            raise InputError("simulation: allowed: 2 experiments and resamples or more, seed >= 0")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    bootstrap = Bootstrap(arguments.resamples, seed=arguments.seed)
    for world in WORLDS:
        print(f"**Coverage of 95 % intervals: {world.name}**\n")
        print("\n".join(lines(world, arguments.experiments, bootstrap)), end="\n\n", flush=True)
    print("**False alarms of tests at 5 %**\n")
    print("\n".join(alarm_lines(arguments.experiments, arguments.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
