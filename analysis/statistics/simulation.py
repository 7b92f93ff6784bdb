"""How often intervals cover the truth, simulated: `python -m analysis.statistics.simulation`.

Made-up runs are like the observed ones: a run either breaks through, and then does well on all long
categories, or it does not, and is better at grasping. Experiments of n such runs are drawn from a
population that is known; an interval covers if the population's value lies within it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics import intervals, measures, significance, survival
from analysis.statistics.intervals import Bootstrap, Matrix
from analysis.tables import markdown
from magellan.core.arguments import ArgumentParser, whole_number
from magellan.core.errors import InputError

SIZES = (4, 5, 8, 10, 20)
# Mean success over training of grasp, plant, herbivore, carnivore, as in runs of the small preset.
BROKEN_THROUGH = np.array([0.42, 0.75, 0.70, 0.66])
STUCK = np.array([0.55, 0.60, 0.03, 0.01])
NOISE = 0.05
LEVEL = 0.5
POPULATION = 200_000

Sampler = Callable[[np.random.Generator, int], Matrix]


@dataclass(frozen=True)
class World:
    """Two samplers of which the truth is known; each maps a count to runs, (count, 4)."""

    name: str
    ours: Sampler
    theirs: Sampler


def bimodal(chance: float) -> Sampler:
    """Runs that break through with this chance."""

    def draw(rng: np.random.Generator, count: int) -> Matrix:
        return _runs((rng.random(count) < chance).astype(float), rng)

    return draw


def graded(highest: float) -> Sampler:
    """Runs that all get somewhere, evenly spread up to a share of the way."""

    def draw(rng: np.random.Generator, count: int) -> Matrix:
        return _runs(rng.random(count) * highest, rng)

    return draw


def _runs(progress: Matrix, rng: np.random.Generator) -> Matrix:
    """Scores of runs from their progress between stuck (0) and broken through (1)."""
    scores = STUCK + progress[:, None] * (BROKEN_THROUGH - STUCK)
    return np.clip(scores + NOISE * rng.standard_normal(scores.shape), 0.0, 1.0)


WORLDS = (
    World("one run in two breaks through", bimodal(0.5), bimodal(0.2)),
    World("one run in five breaks through", bimodal(0.2), bimodal(0.5)),
    World("runs are evenly spread", graded(1.0), graded(0.6)),
)


# --- intervals of many experiments: (experiments, runs, 4) twice to (2, experiments) --------------


def mean_per_category(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The old interval: each category of a run is resampled by itself."""
    tasks = range(ours.shape[2])
    parts = [resample_means(ours[:, :, task].T, _seeded(bootstrap, task)) for task in tasks]
    return _percentiles(np.mean(parts, axis=0), bootstrap)


def mean_percentile(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles of the means of resampled runs."""
    return _percentiles(resample_means(ours.mean(axis=2).T, bootstrap), bootstrap)


def mean_bca(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles corrected for bias and skew (BCa); percentiles where all runs are equal."""
    from scipy.stats import norm

    values = ours.mean(axis=2).T
    drawn = np.sort(resample_means(values, bootstrap), axis=0)
    centred = values - values.mean(axis=0)
    below = (drawn < values.mean(axis=0)).mean(axis=0)
    bias = norm.ppf(np.clip(below, 1 / len(drawn), 1 - 1 / len(drawn)))
    skew = (centred**3).sum(axis=0) / (6 * (centred**2).sum(axis=0) ** 1.5)
    bounds = []
    for normal in norm.ppf([bootstrap.tail, 1 - bootstrap.tail]):
        share = norm.cdf(bias + (bias + normal) / (1 - skew * (bias + normal)))
        place = np.round(share * (len(drawn) - 1)).astype(int)
        bounds.append(drawn[place, np.arange(drawn.shape[1])])
    return np.stack(bounds)


def mean_student(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Student's t interval of the run means."""
    from scipy.stats import t

    values = ours.mean(axis=2)
    error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    half = t.ppf(1 - bootstrap.tail, values.shape[1] - 1) * error
    return np.stack([values.mean(axis=1) - half, values.mean(axis=1) + half])


def mean_studentised(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    found = intervals.mean_estimate(ours.mean(axis=2).T, bootstrap)
    return np.stack([found.low, found.high])


def difference_percentile(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Percentiles of differences of the means of resampled runs."""
    sizes = ours.shape[1], theirs.shape[1]
    weights = intervals.resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    mine, other = (scores.mean(axis=2).T for scores in (ours, theirs))
    return _percentiles(weights[0] @ mine - weights[1] @ other, bootstrap)


def difference_studentised(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    mine, other = (scores.mean(axis=2).T for scores in (ours, theirs))
    found = intervals.difference_estimate(mine, other, bootstrap)
    return np.stack([found.low, found.high])


def iqm_per_category(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The old interval: each category of a run is resampled by itself."""
    tasks = range(ours.shape[2])
    rows = np.stack([_rows(ours.shape[1], _seeded(bootstrap, task)) for task in tasks], axis=-1)
    drawn = [measures.iqm(scores[rows, np.arange(len(tasks))])[:, 0] for scores in ours]
    return _percentiles(np.stack(drawn, axis=1), bootstrap)


def iqm_percentile(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    return _each(
        lambda mine, other: intervals.percentile_estimate([mine], measures.iqm, bootstrap),
        ours,
        theirs,
    )


def profile_percentile(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use, at one level."""
    above = (ours > LEVEL).mean(axis=2).T
    return _percentiles(resample_means(above, bootstrap), bootstrap)


def improvement_percentile(ours: Matrix, theirs: Matrix, bootstrap: Bootstrap) -> Matrix:
    """The interval in use."""
    function = measures.probability_of_improvement
    return _each(
        lambda mine, other: intervals.percentile_estimate([mine, other], function, bootstrap),
        ours,
        theirs,
    )


def resample_means(values: Matrix, bootstrap: Bootstrap) -> Matrix:
    """Means of resampled runs: (runs, experiments) to (resamples, experiments)."""
    sizes = (len(values),)
    (weights,) = intervals.resample_weights(sizes, bootstrap.repetitions, bootstrap.seed)
    return weights @ values


def _rows(runs: int, bootstrap: Bootstrap) -> np.ndarray:
    return intervals.resample_rows((runs,), bootstrap.repetitions, bootstrap.seed)[0]


def _seeded(bootstrap: Bootstrap, more: int) -> Bootstrap:
    return Bootstrap(bootstrap.repetitions, bootstrap.confidence, bootstrap.seed + 1 + more)


def _percentiles(drawn: Matrix, bootstrap: Bootstrap) -> Matrix:
    return np.quantile(drawn, [bootstrap.tail, 1 - bootstrap.tail], axis=0)


def _each(
    function: Callable[[Matrix, Matrix], intervals.Estimate], ours: Matrix, theirs: Matrix
) -> Matrix:
    found = [function(*pair) for pair in zip(ours, theirs, strict=True)]
    return np.array([[each.low[0], each.high[0]] for each in found]).T


# --- what is covered ------------------------------------------------------------------------------


def true_mean(ours: Matrix, theirs: Matrix) -> float:
    """Mean of a population."""
    return float(ours.mean())


def true_iqm(ours: Matrix, theirs: Matrix) -> float:
    """IQM of a population."""
    return float(measures.iqm(ours)[0])


def true_profile(ours: Matrix, theirs: Matrix) -> float:
    """Share of a population above the level."""
    return float((ours > LEVEL).mean())


def true_difference(ours: Matrix, theirs: Matrix) -> float:
    """Difference of the means of two populations."""
    return float(ours.mean() - theirs.mean())


def true_improvement(ours: Matrix, theirs: Matrix) -> float:
    """Chance that a run of the one population beats one of the other."""
    return float((ours > theirs).mean())


@dataclass(frozen=True)
class Method:
    """An interval of a statistic; `used` if the tables have it."""

    statistic: str
    name: str
    interval: Callable[[Matrix, Matrix, Bootstrap], Matrix]
    truth: Callable[[Matrix, Matrix], float]
    used: bool = True


METHODS = (
    Method("mean", "percentile, per category (old)", mean_per_category, true_mean, False),
    Method("mean", "percentile, whole runs", mean_percentile, true_mean, False),
    Method("mean", "BCa, whole runs", mean_bca, true_mean, False),
    Method("mean", "Student t of run means", mean_student, true_mean, False),
    Method("mean", "studentised, whole runs", mean_studentised, true_mean),
    Method(
        "difference of means",
        "percentile, whole runs",
        difference_percentile,
        true_difference,
        False,
    ),
    Method(
        "difference of means", "studentised, whole runs", difference_studentised, true_difference
    ),
    Method("IQM", "percentile, per category (old)", iqm_per_category, true_iqm, False),
    Method("IQM", "percentile, whole runs", iqm_percentile, true_iqm),
    Method("profile at 0.5", "percentile, whole runs", profile_percentile, true_profile),
    Method(
        "probability of improvement",
        "percentile, whole runs",
        improvement_percentile,
        true_improvement,
    ),
)


def coverage(
    method: Method, world: World, runs: int, experiments: int, bootstrap: Bootstrap
) -> float:
    """Share of experiments of so many runs per sampler whose interval holds the truth."""
    rng = np.random.default_rng([bootstrap.seed, runs])
    ours, theirs = (
        draw(rng, experiments * runs).reshape(experiments, runs, -1)
        for draw in (world.ours, world.theirs)
    )
    low, high = method.interval(ours, theirs, bootstrap)
    truth = method.truth(*population(world))
    slack = intervals.ROUNDING
    return float(((low - slack <= truth) & (truth <= high + slack)).mean())


def population(world: World) -> tuple[Matrix, Matrix]:
    """Very many runs of both samplers, each (runs, 4)."""
    rng = np.random.default_rng(12345)
    return world.ours(rng, POPULATION), world.theirs(rng, POPULATION)


def false_alarms(world: World, runs: int, experiments: int, seed: int) -> dict[str, float]:
    """Share of p values of 0.05 or less where both samplers are the same, for each test."""
    rng = np.random.default_rng([seed, runs])
    found: dict[str, list[bool]] = {"permutation": [], "log-rank": []}
    for _ in range(experiments):
        scores = world.ours(rng, 2 * runs)
        means, times = scores.mean(axis=1), rng.exponential(1.0, 2 * runs)
        p = significance.permutation_test(means[:runs], means[runs:], seed).p
        found["permutation"].append(p <= 0.05)
        mastered = times < 0.7  # about half of the runs
        times = np.minimum(np.ceil(times * 10) / 10, 0.7)
        parts = [(times[at], mastered[at]) for at in (slice(runs), slice(runs, None))]
        found["log-rank"].append(survival.log_rank(*parts).p <= 0.05)
    return {name: float(np.mean(alarms)) for name, alarms in found.items()}


# --- the table ------------------------------------------------------------------------------------


def header() -> list[str]:
    """First lines of every table."""
    return markdown.head(["statistic", "interval", "in use", *(f"n = {n}" for n in SIZES)])


def lines(world: World, experiments: int, bootstrap: Bootstrap) -> Iterator[str]:
    """The table of one world."""
    yield from header()
    for method in METHODS:
        found = [coverage(method, world, runs, experiments, bootstrap) for runs in SIZES]
        yield row(method, found)


def row(method: Method, found: Sequence[float]) -> str:
    """One line of a table."""
    used = "yes" if method.used else "no"
    return markdown.row([method.statistic, method.name, used, *(f"{x:.2f}" for x in found)])


def alarm_lines(experiments: int, seed: int) -> Iterator[str]:
    """False alarms of both tests."""
    yield from markdown.head(["test", *(f"n = {n}" for n in SIZES)])
    found = [false_alarms(WORLDS[0], runs, experiments, seed) for runs in SIZES]
    for name in found[0]:
        yield markdown.row([name, *(f"{each[name]:.3f}" for each in found)])


def main(argv: list[str] | None = None) -> int:
    """Print the tables of docs/studies/coverage.md; status 2 and one line for bad arguments."""
    try:
        arguments = _parser().parse_args(argv)
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


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m analysis.statistics.simulation", description=__doc__)
    for name, value, text in (
        ("--experiments", 1_000, "made-up experiments of each size"),
        ("--resamples", 1_000, "resamples of each interval"),
        ("--seed", 0, "of everything that is drawn"),
    ):
        parser.add_argument(
            name, type=whole_number, default=value, help=f"{text} (default: {value:,})"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
