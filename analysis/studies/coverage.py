"""Simulate the coverage of intervals: `python -m analysis.studies.coverage`.

Simulated runs resemble the observed ones: a run either breaks through and does well on all long
categories, or gets stuck and is better at grasping. Experiments of n runs are drawn from a known
population; an interval covers if it contains the population's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import stats

from analysis.statistics import intervals, mastery, matrices
from analysis.statistics.intervals import RATE, Bootstrap, Matrix
from analysis.tables.printing import Table, to_markdown

SIZES, PAIRS = (4, 5, 8, 10, 20), (5, 8, 12)
# Mean success over training on grasp, plant, herbivore, carnivore, as in runs of the small preset.
BROKEN_THROUGH = np.array([0.42, 0.75, 0.70, 0.66])
STUCK = np.array([0.55, 0.60, 0.03, 0.01])
NOISE, LEVEL, POPULATION = 0.05, 0.5, 200_000
LEAD, SPREAD, OUTLIER, OUTLIERS = 0.1, 0.1, 0.5, 0.1
"""Mean and standard deviation of a pair's difference; size and share of outliers."""

Sampler = Callable[[np.random.Generator, int], Matrix]
"""Draws so many runs, (count, 4)."""
Interval = Callable[[Matrix, Matrix, Bootstrap], Matrix]
"""From many experiments, twice (experiments, runs, 4), to their bounds, (2, experiments)."""


def _runs(progress: Matrix, rng: np.random.Generator) -> Matrix:
    """Scores of runs from their progress between stuck (0) and broken through (1)."""
    scores = STUCK + progress[:, None] * (BROKEN_THROUGH - STUCK)
    return np.clip(scores + NOISE * rng.standard_normal(scores.shape), 0.0, 1.0)


def bimodal(chance: float) -> Sampler:
    """Runs that break through with this probability."""
    return lambda rng, count: _runs((rng.random(count) < chance).astype(float), rng)


def graded(highest: float) -> Sampler:
    """Runs with progress uniform between 0 and `highest`."""
    return lambda rng, count: _runs(rng.random(count) * highest, rng)


WORLDS: dict[str, tuple[Sampler, Sampler]] = {
    "one run in two breaks through": (bimodal(0.5), bimodal(0.2)),
    "one in five": (bimodal(0.2), bimodal(0.5)),
    "evenly spread": (graded(1.0), graded(0.6)),
}
"""Two samplers with known distributions."""


# --- intervals of means: (experiments, runs) to (2, experiments) ----------------------------------


def studentised(values: Matrix, bootstrap: Bootstrap, bounds: tuple[float, float] = RATE) -> Matrix:
    """The studentised bootstrap."""
    estimate = intervals.mean_estimate(values.T, bootstrap, bounds)
    return np.stack([estimate.low, estimate.high])


def student_t(values: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Student's t interval."""
    runs, error = values.shape[1], stats.sem(values, axis=1)
    return np.stack(stats.t.interval(bootstrap.confidence, runs - 1, values.mean(axis=1), error))


# --- other intervals ------------------------------------------------------------------------------


def of_means(interval: Callable[[Matrix, Bootstrap], Matrix]) -> Interval:
    """An interval of the mean of the first sampler's runs."""
    return lambda first, second, bootstrap: interval(first.mean(axis=2), bootstrap)


def resampled(function: Callable[..., Matrix], both: bool = False) -> Interval:
    """Percentiles of a statistic of resampled runs; `both`: of both samplers."""

    def interval(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
        samples = [list(one) for one in zip(*(first, second)[: 1 + both], strict=True)]
        found = [intervals.percentile_estimate(one, function, bootstrap) for one in samples]
        return np.array([[estimate.low[0], estimate.high[0]] for estimate in found]).T

    return interval


def inverted(first: Matrix, second: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval of a difference in use."""
    pairs = zip(first.mean(axis=2), second.mean(axis=2), strict=True)
    return np.array([intervals.permutation_test(*pair)[1:3] for pair in pairs]).T


def profile(scores: Matrix) -> Matrix:
    """Performance profile at one level."""
    return matrices.performance_profile(scores, np.array([LEVEL]))


def improvement(first: Matrix, second: Matrix) -> float:
    """Chance that a run of the first population is better; a tie counts one half."""
    return float(0.5 + 0.5 * np.sign(first - second).mean())


TRUTHS: dict[str, Callable[[Matrix, Matrix], float]] = {
    "mean": lambda first, second: float(first.mean()),
    "difference of means": lambda first, second: float(first.mean() - second.mean()),
    "IQM": lambda first, second: float(matrices.iqm(first)[0]),
    "profile at 0.5": lambda first, second: float((first > LEVEL).mean()),
    "probability of improvement": improvement,
}
"""Statistics of two populations, by name."""

WHOLE_RUNS = "percentile, whole runs"
METHODS: Sequence[tuple[str, str, str, Interval]] = (
    ("mean", "Student t of run means", "no", of_means(student_t)),
    ("mean", "studentised, whole runs", "yes", of_means(studentised)),
    ("difference of means", "inverted permutation test", "yes", inverted),
    ("IQM", WHOLE_RUNS, "yes", resampled(matrices.iqm)),
    ("profile at 0.5", WHOLE_RUNS, "yes", resampled(profile)),
    (
        *("probability of improvement", WHOLE_RUNS, "yes"),
        resampled(matrices.probability_of_improvement, True),
    ),
)
"""Statistic, name, whether the tables have this interval, and the interval."""


def population(world: str) -> list[Matrix]:
    """`POPULATION` runs of both samplers, each (POPULATION, 4)."""
    rng = np.random.default_rng(12345)
    return [draw(rng, POPULATION) for draw in WORLDS[world]]


def coverage(
    statistic: str, interval: Interval, world: str, runs: int, experiments: int, by: Bootstrap
) -> float:
    """Share of experiments with `runs` runs per sampler whose interval covers the truth."""
    rng = np.random.default_rng([by.seed, runs])
    first, second = (
        draw(rng, experiments * runs).reshape(experiments, runs, -1) for draw in WORLDS[world]
    )
    low, high = interval(first, second, by)
    truth, slack = TRUTHS[statistic](*population(world)), intervals.ROUNDING
    return float(((low - slack <= truth) & (truth <= high + slack)).mean())


def false_alarms(world: str, runs: int, experiments: int, seed: int) -> dict[str, float]:
    """Share of p values of 0.05 or less for identical samplers, for each test."""
    rng = np.random.default_rng([seed, runs])
    p: dict[str, list[float]] = {"permutation": [], "log-rank": []}
    for _ in range(experiments):
        means = WORLDS[world][0](rng, 2 * runs).mean(axis=1)
        times = rng.exponential(1.0, 2 * runs)
        p["permutation"].append(intervals.permutation_test(means[:runs], means[runs:], seed).p)
        mastered = times < 0.7  # about half of the runs
        times = np.minimum(np.ceil(times * 10) / 10, 0.7)
        groups = [(times[rows], mastered[rows]) for rows in (slice(runs), slice(runs, None))]
        p["log-rank"].append(mastery.log_rank(*groups).p)
    return {name: float((np.array(values) <= 0.05).mean()) for name, values in p.items()}


PAIRED: dict[str, Callable[[Matrix, Bootstrap], Matrix]] = {
    "studentised bootstrap": lambda values, by: studentised(values, by, (-1.0, 1.0)),
    "Student t": student_t,
    "inverted sign-flip test": lambda values, by: (
        np.array([intervals.sign_flip_test(pairs)[1:3] for pairs in values]).T
    ),
}
KINDS = {"no outliers": 0.0, "outliers on both sides": 0.0, "outliers on one side": OUTLIER}
"""Kind of differences, and what an outlier adds to their mean."""


def draw_pairs(kind: str, rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Differences of pairs of a kind: (experiments, pairs)."""
    values = LEAD + SPREAD * rng.standard_normal(shape)
    if kind == "no outliers":
        return values
    sides = np.ones(shape) if kind == "outliers on one side" else rng.choice((-1.0, 1.0), shape)
    return values + OUTLIER * sides * (rng.random(shape) < OUTLIERS)


def paired_cell(kind: str, method: str, pairs: int, experiments: int, by: Bootstrap) -> str:
    """Coverage, and in brackets median length and share of intervals that exclude 0."""
    rng = np.random.default_rng([by.seed, pairs])
    low, high = PAIRED[method](draw_pairs(kind, rng, (experiments, pairs)), by)
    if np.isnan(low).all():
        return "none"
    truth = LEAD + OUTLIERS * KINDS[kind]
    covered, found = ((low <= truth) & (truth <= high)).mean(), ((low > 0) | (high < 0)).mean()
    return f"{covered:.2f} ({np.median(high - low):.2f}, {found:.2f})"


def tables(experiments: int = 1_000, resamples: int = 1_000) -> Iterator[Table]:
    """The tables of docs/studies/coverage.md."""
    by = Bootstrap(resamples)
    rows = [
        [kind, method, *(paired_cell(kind, method, n, experiments, by) for n in PAIRS)]
        for kind in KINDS
        for method in PAIRED
    ]
    caption = "Paired differences: coverage (median length, share of intervals that exclude 0)"
    yield Table(caption, ("differences", "interval", *(f"n = {n}" for n in PAIRS)), rows)
    sizes = [f"n = {n}" for n in SIZES]
    rows = []
    for *cells, of in METHODS:
        for n in SIZES:
            shares = (coverage(cells[0], of, world, n, experiments, by) for world in WORLDS)
            cells.append(", ".join(f"{share:.2f}" for share in shares))
        rows.append(cells)
    header = ("statistic", "interval", "in use", *sizes)
    yield Table(f"Coverage of 95 % intervals: {', '.join(WORLDS)}", header, rows)
    alarms = [false_alarms(next(iter(WORLDS)), n, experiments, by.seed) for n in SIZES]
    rows = [[test, *(f"{one[test]:.3f}" for one in alarms)] for test in alarms[0]]
    yield Table("False alarms of tests at 5 %", ("test", *sizes), rows)


if __name__ == "__main__":
    for table in tables():
        print(to_markdown(table), end="\n\n", flush=True)
