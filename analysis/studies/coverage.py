"""Simulate the coverage of intervals: `python -m analysis.studies.coverage`.

Simulated runs resemble the observed ones: a run either breaks through and does well on all long
categories, or gets stuck and is better at grasping. Experiments of n runs are drawn from a known
population; an interval covers if it contains the population's value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from analysis.statistics import intervals, mastery, matrices
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.tables.printing import Table, to_markdown
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


class Scenario(NamedTuple):
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
    Scenario("one run in two breaks through", bimodal(0.5), bimodal(0.2)),
    Scenario("one run in five breaks through", bimodal(0.2), bimodal(0.5)),
    Scenario("runs are evenly spread", graded(1.0), graded(0.6)),
)


# --- intervals of many experiments: twice (experiments, runs, 4) to (2, experiments) --------------


def percentile(
    function: Callable[..., Matrix],
    first: Matrix,
    second: Matrix,
    bootstrap: Bootstrap,
    both: bool = False,
) -> Matrix:
    """Percentiles of a statistic of resampled runs; `both`: of both samplers."""
    samples = [list(runs) for runs in zip(first, second, strict=True)] if both else first[:, None]
    estimates = [intervals.percentile_estimate(runs, function, bootstrap) for runs in samples]
    return np.array([[estimate.low[0], estimate.high[0]] for estimate in estimates]).T


def per_category(
    function: Callable[..., Matrix], first: Matrix, second: Matrix, bootstrap: Bootstrap
) -> Matrix:
    """The old interval: each category of a run is resampled by itself."""
    _, runs, tasks = first.shape
    seeds = range(bootstrap.seed + 1, bootstrap.seed + 1 + tasks)
    drawn = [intervals.resample_rows((runs,), bootstrap.repetitions, seed)[0] for seed in seeds]
    rows = np.stack(drawn, axis=-1)
    values = [function(scores[rows, np.arange(tasks)])[:, 0] for scores in first]
    return np.quantile(values, [bootstrap.tail, 1 - bootstrap.tail], axis=1)


def mean_bca(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles corrected for bias and skew (BCa); percentiles if all runs are equal."""
    from scipy.stats import norm

    values = first.mean(axis=2).T
    (weights,) = intervals.resample_weights((len(values),), bootstrap.repetitions, bootstrap.seed)
    drawn = np.sort(weights @ values, axis=0)
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
    interval = t.interval(bootstrap.confidence, values.shape[1] - 1, values.mean(axis=1), error)
    return np.stack(interval)


def mean_studentised(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    estimate = intervals.mean_estimate(first.mean(axis=2).T, bootstrap)
    return np.stack([estimate.low, estimate.high])


def difference_inverted(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    pairs = zip(first.mean(axis=2), second.mean(axis=2), strict=True)
    return np.array([intervals.permutation_test(*pair)[1:3] for pair in pairs]).T


# --- statistics of runs, twice (..., runs, 4) to (..., 1), and their intervals --------------------


def mean(scores: Matrix) -> Matrix:
    """Mean of all scores."""
    return scores.mean(axis=(-2, -1))[..., None]


def difference(first: Matrix, second: Matrix) -> Matrix:
    """Difference of the means."""
    return mean(first) - mean(second)


def profile(scores: Matrix) -> Matrix:
    """Performance profile at one level."""
    return matrices.performance_profile(scores, np.array([LEVEL]))


TRUTHS: dict[str, Callable[[Matrix, Matrix], float]] = {
    "mean": lambda first, second: float(first.mean()),
    "difference of means": lambda first, second: float(first.mean() - second.mean()),
    "IQM": lambda first, second: float(matrices.iqm(first)[0]),
    "profile at 0.5": lambda first, second: float((first > LEVEL).mean()),
    # A tie counts one half, as in the estimate.
    "probability of improvement": lambda first, second: float(
        0.5 + 0.5 * np.sign(first - second).mean()
    ),
}
"""Statistics of two populations, by name."""


class Method(NamedTuple):
    """An interval of a statistic; `used`: whether the tables have it."""

    statistic: str
    name: str
    interval: Callable[[Matrix, Matrix, Bootstrap], Matrix]
    used: bool = True


OLD, WHOLE_RUNS = "percentile, per category (old)", "percentile, whole runs"
STUDENTISED, INVERTED = "studentised, whole runs", "inverted permutation test"
METHODS = (
    Method("mean", OLD, partial(per_category, mean), False),
    Method("mean", WHOLE_RUNS, partial(percentile, mean), False),
    Method("mean", "BCa, whole runs", mean_bca, False),
    Method("mean", "Student t of run means", mean_student, False),
    Method("mean", STUDENTISED, mean_studentised),
    Method("difference of means", WHOLE_RUNS, partial(percentile, difference, both=True), False),
    Method("difference of means", INVERTED, difference_inverted),
    Method("IQM", OLD, partial(per_category, matrices.iqm), False),
    Method("IQM", WHOLE_RUNS, partial(percentile, matrices.iqm)),
    Method("profile at 0.5", WHOLE_RUNS, partial(percentile, profile)),
    Method(
        "probability of improvement",
        WHOLE_RUNS,
        partial(percentile, matrices.probability_of_improvement, both=True),
    ),
)


def coverage(
    method: Method, scenario: Scenario, runs: int, experiments: int, bootstrap: Bootstrap
) -> float:
    """Share of experiments with `runs` runs per sampler whose interval covers the truth."""
    rng = np.random.default_rng([bootstrap.seed, runs])
    first, second = (
        draw(rng, experiments * runs).reshape(experiments, runs, -1)
        for draw in (scenario.first, scenario.second)
    )
    low, high = method.interval(first, second, bootstrap)
    truth = TRUTHS[method.statistic](*population(scenario))
    slack = intervals.ROUNDING
    return float(((low - slack <= truth) & (truth <= high + slack)).mean())


def population(scenario: Scenario) -> tuple[Matrix, Matrix]:
    """`POPULATION` runs of both samplers, each (POPULATION, 4)."""
    rng = np.random.default_rng(12345)
    return scenario.first(rng, POPULATION), scenario.second(rng, POPULATION)


def false_alarms(scenario: Scenario, runs: int, experiments: int, seed: int) -> dict[str, float]:
    """Share of p values of 0.05 or less for identical samplers, for each test."""
    rng = np.random.default_rng([seed, runs])
    rejected: dict[str, list[bool]] = {"permutation": [], "log-rank": []}
    for _ in range(experiments):
        scores = scenario.first(rng, 2 * runs)
        means, times = scores.mean(axis=1), rng.exponential(1.0, 2 * runs)
        p = intervals.permutation_test(means[:runs], means[runs:], seed).p
        rejected["permutation"].append(p <= 0.05)
        mastered = times < 0.7  # about half of the runs
        times = np.minimum(np.ceil(times * 10) / 10, 0.7)
        groups = [(times[rows], mastered[rows]) for rows in (slice(runs), slice(runs, None))]
        rejected["log-rank"].append(mastery.log_rank(*groups).p <= 0.05)
    return {name: float(np.mean(alarms)) for name, alarms in rejected.items()}


# --- differences of pairs: (experiments, pairs) to (2, experiments) -------------------------------

PAIRS = (5, 8, 12)
LEAD, SPREAD, OUTLIER, OUTLIERS = 0.1, 0.1, 0.5, 0.1
"""Mean and standard deviation of a pair's difference; size and share of outliers."""


def draw_pairs(kind: str, rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Differences of pairs; kind: `no outliers`, `outliers on both sides` or `... on one side`."""
    values = LEAD + SPREAD * rng.standard_normal(shape)
    if kind == "no outliers":
        return values
    sides = np.ones(shape) if kind == "outliers on one side" else rng.choice((-1.0, 1.0), shape)
    return values + OUTLIER * sides * (rng.random(shape) < OUTLIERS)


def studentised_pairs(values: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval of the protocols before; cut at -1 and 1."""
    estimate = intervals.mean_estimate(values.T, bootstrap, (-1.0, 1.0))
    return np.stack([estimate.low, estimate.high])


def percentile_pairs(values: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles of the resampled means."""
    sizes = (values.shape[1],)
    (weights,) = intervals.resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    return np.quantile(weights @ values.T, [bootstrap.tail, 1 - bootstrap.tail], axis=0)


def inverted_pairs(values: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    return np.array([intervals.sign_flip_test(pairs)[1:3] for pairs in values]).T


PAIRED = {
    "studentised bootstrap": studentised_pairs,
    "percentile bootstrap": percentile_pairs,
    "Student t": lambda values, bootstrap: mean_student(values[..., None], values, bootstrap),
    "inverted sign-flip test": inverted_pairs,
}
KINDS = {"no outliers": 0.0, "outliers on both sides": 0.0, "outliers on one side": OUTLIER}
"""Kind of differences, and what an outlier adds to their mean."""


def paired_cell(kind: str, method: str, pairs: int, experiments: int, bootstrap: Bootstrap) -> str:
    """Coverage, and in brackets median length and share of intervals that exclude 0."""
    rng = np.random.default_rng([bootstrap.seed, pairs])
    values = draw_pairs(kind, rng, (experiments, pairs))
    low, high = PAIRED[method](values, bootstrap)
    if np.isnan(low).all():
        return "none"
    truth = LEAD + OUTLIERS * KINDS[kind]
    covered, found = ((low <= truth) & (truth <= high)).mean(), ((low > 0) | (high < 0)).mean()
    return f"{covered:.2f} ({np.median(high - low):.2f}, {found:.2f})"


# --- tables ---------------------------------------------------------------------------------------

COLUMNS = ("statistic", "interval", "in use", *(f"n = {n}" for n in SIZES))


def coverage_table(scenario: Scenario, experiments: int, bootstrap: Bootstrap) -> Table:
    """Coverage of every interval in one scenario."""
    rows = []
    for method in METHODS:
        shares = (coverage(method, scenario, runs, experiments, bootstrap) for runs in SIZES)
        cells = [method.statistic, method.name, "yes" if method.used else "no"]
        rows.append([*cells, *(f"{share:.2f}" for share in shares)])
    return Table(f"Coverage of 95 % intervals: {scenario.name}", COLUMNS, rows)


def alarm_table(experiments: int, seed: int) -> Table:
    """False alarms of both tests."""
    by_size = [false_alarms(WORLDS[0], runs, experiments, seed) for runs in SIZES]
    rows = [[name, *(f"{alarms[name]:.3f}" for alarms in by_size)] for name in by_size[0]]
    return Table("False alarms of tests at 5 %", ("test", *COLUMNS[3:]), rows)


def paired_table(experiments: int, bootstrap: Bootstrap) -> Table:
    """Coverage, median length and power of every interval of paired differences."""
    rows = [
        [kind, method, *(paired_cell(kind, method, n, experiments, bootstrap) for n in PAIRS)]
        for kind in KINDS
        for method in PAIRED
    ]
    caption = "Paired differences: coverage (median length, share of intervals that exclude 0)"
    return Table(caption, ("differences", "interval", *(f"n = {n}" for n in PAIRS)), rows)


def main(argv: list[str] | None = None) -> int:
    """Print the tables of docs/studies/coverage.md; status 2 and one line for bad arguments."""
    parser = ArgumentParser(prog="python -m analysis.studies.coverage", description=__doc__)
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
    print(to_markdown(paired_table(arguments.experiments, bootstrap)), end="\n\n", flush=True)
    for scenario in WORLDS:
        table = coverage_table(scenario, arguments.experiments, bootstrap)
        print(to_markdown(table), end="\n\n", flush=True)
    print(to_markdown(alarm_table(arguments.experiments, arguments.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
