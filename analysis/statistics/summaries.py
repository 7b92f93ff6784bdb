"""The statistics of an experiment as tidy tables.

Each row with an interval gives its number of seeds (`runs`) and categories (`tasks`) and the
method of the interval. A user's own file adds tables with `register_statistic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.statistics import intervals, mastery, matrices, primary  # noqa: F401 (registered)
from analysis.statistics.intervals import Bootstrap, Estimate
from analysis.statistics.matrices import Row
from analysis.statistics.registry import STATISTICS, call_checked, refuse, register_statistic
from analysis.tables.grid import RUN_COLUMNS, Algorithm
from analysis.tables.phases import each_phase
from analysis.tables.results import Results, distinct
from magellan.core.errors import InputError, shown
from magellan.core.files import write_atomically
from magellan.core.registry import is_built_in

THRESHOLDS = np.linspace(0.0, 1.0, 101)

Parts = Callable[[str, str, Algorithm], Iterable[Row]]
"""Columns of the rows of a goal space, split and algorithm: numbers, texts and arrays (rows,)."""


def _stacked(results: Results, parts: Parts) -> pd.DataFrame:
    frames = [
        pd.DataFrame({"goal_space": where[0], "split": where[1], **columns})
        for where in matrices.algorithms_of(results)
        for columns in parts(*where)
    ]
    return pd.concat(frames, ignore_index=True)


@register_statistic("success")
def success(results: Results) -> pd.DataFrame:
    """Success per category at each evaluation point: mean over seeds, its interval, its range."""
    bootstrap = matrices.bootstrap_of(results)

    def parts(goal_space: str, split: str, algorithm: Algorithm) -> Iterator[Row]:
        curves = matrices.success_curves(results, algorithm, goal_space, split)
        flat = curves.reshape(len(curves), -1)
        mean = intervals.mean_estimate(flat, bootstrap)
        categories = matrices.evaluated_categories(results, goal_space, split)
        points = matrices.evaluation_points(results, goal_space)
        yield {
            "category": np.repeat(categories, len(points)),
            **algorithm._asdict(),
            results.unit_column: np.tile(points, len(categories)),
            "mean": mean.value,
            "low": mean.low,
            "high": mean.high,
            "lowest_seed": flat.min(axis=0),
            "highest_seed": flat.max(axis=0),
            **matrices.provenance(bootstrap, (len(flat), 1), mean.method),
        }

    return _stacked(results, parts)


@register_statistic("scores")
def scores(results: Results) -> pd.DataFrame:
    """Final success and area under the learning curve of every run and category."""

    def parts(goal_space: str, split: str, algorithm: Algorithm) -> Iterator[Row]:
        where = results, algorithm, goal_space, split
        tables = {score: matrices.run_scores(*where, score) for score in matrices.SCORES}
        seeds, categories = tables[matrices.SCORES[0]].axes
        yield {
            "category": np.repeat(categories, len(seeds)),
            **algorithm._asdict(),
            "seed": np.tile(seeds, len(categories)),
            **{score: table.to_numpy().T.ravel() for score, table in tables.items()},
        }

    return _stacked(results, parts)


@register_statistic("aggregates")
def aggregates(results: Results) -> pd.DataFrame:
    """IQM and mean over seeds x categories, for each score.

    The IQM drops the lowest and highest quarter of all values; of three or fewer it drops none.
    """
    bootstrap = matrices.bootstrap_of(results)

    def parts(goal_space: str, split: str, algorithm: Algorithm) -> Iterator[Row]:
        for score in matrices.SCORES:
            matrix = matrices.run_scores(results, algorithm, goal_space, split, score).to_numpy()
            estimates = {
                "iqm": intervals.percentile_estimate([matrix], matrices.iqm, bootstrap),
                "mean": intervals.mean_estimate(matrix.mean(axis=1, keepdims=True), bootstrap),
            }
            for statistic, estimate in estimates.items():
                names = {"score": score, **algorithm._asdict(), "statistic": statistic}
                yield names | _interval("value", estimate, matrix.shape, bootstrap)

    return _stacked(results, parts)


def _interval(name: str, estimate: Estimate, shape: tuple[int, ...], bootstrap: Bootstrap) -> Row:
    return {name: estimate.value, **matrices.interval_of(estimate, slice(None), shape, bootstrap)}


IMPROVEMENT_COLUMNS = (
    *("goal_space", "split", "score", "sampler", "variant", "baseline", "baseline_variant"),
    *("probability", "low", "high", *matrices.INTERVAL_COLUMNS),
)


@register_statistic("improvement")
def improvement(results: Results) -> pd.DataFrame:
    """Probability that a run of the reference beats one of each other algorithm.

    Empty if the reference has no run. `runs` is the smaller number of seeds; with a single seed
    there is no interval.
    """
    bootstrap, rows = matrices.bootstrap_of(results), []
    for names, both in matrices.baselines_of(results):
        where = names["goal_space"], names["split"]
        for score in matrices.SCORES:
            pair = [matrices.run_scores(results, name, *where, score).to_numpy() for name in both]
            estimate = intervals.percentile_estimate(
                pair, matrices.probability_of_improvement, bootstrap
            )
            shape = min(len(matrix) for matrix in pair), pair[0].shape[1]
            columns = {**names, "score": score, "probability": estimate.value[0]}
            rows.append(columns | matrices.interval_of(estimate, 0, shape, bootstrap))
    return pd.DataFrame(rows, columns=list(IMPROVEMENT_COLUMNS))


@register_statistic("profiles")
def profiles(results: Results) -> pd.DataFrame:
    """Fraction of seeds x categories above each threshold of success, for each score."""
    bootstrap = matrices.bootstrap_of(results)

    def parts(goal_space: str, split: str, algorithm: Algorithm) -> Iterator[Row]:
        for score in matrices.SCORES:
            matrix = matrices.run_scores(results, algorithm, goal_space, split, score).to_numpy()
            estimate = intervals.percentile_estimate(
                [matrix], lambda x: matrices.performance_profile(x, THRESHOLDS), bootstrap
            )
            names = {"score": score, **algorithm._asdict(), "threshold": THRESHOLDS}
            yield names | _interval("fraction", estimate, matrix.shape, bootstrap)

    return _stacked(results, parts)


@register_statistic("sample_efficiency")
def sample_efficiency(results: Results) -> pd.DataFrame:
    """IQM over seeds x categories at each evaluation point."""
    bootstrap = matrices.bootstrap_of(results)

    def parts(goal_space: str, split: str, algorithm: Algorithm) -> Iterator[Row]:
        curves = matrices.success_curves(results, algorithm, goal_space, split)
        estimate = intervals.percentile_estimate([curves], matrices.iqm_curve, bootstrap)
        points = {results.unit_column: matrices.evaluation_points(results, goal_space)}
        columns = _interval("iqm", estimate, curves.shape, bootstrap)
        yield algorithm._asdict() | points | columns

    return _stacked(results, parts)


PHASE_SCORES = ("first", "area", "final")
"""Success at the first evaluation of a phase, its mean over the phase, and at the last one."""
MEAN = "mean"
"""In the column `category`: the mean of the evaluated categories, one number per run."""

PHASE_COLUMNS = (
    *("goal_space", "phase", "begins", "practised", "split", "category", "sampler", "variant"),
    *("score", "value", "low", "high", *matrices.INTERVAL_COLUMNS),
)


@register_statistic("phases")
def phases(results: Results) -> pd.DataFrame:
    """Success in each phase of each algorithm: at the first evaluation, on average, at the last.

    Empty if runs have one phase.
    """
    rows: list[Row] = []
    for phase in each_phase(results):
        tables, bootstrap = phase.results, matrices.bootstrap_of(results)
        for space, split, algorithm in matrices.algorithms_of(tables):
            for score in PHASE_SCORES:
                table = matrices.run_scores(tables, algorithm, space, split, score)
                values = np.column_stack([table, table.mean(axis=1)])
                estimate = intervals.mean_estimate(values, bootstrap)
                for column, category in enumerate((*table, MEAN)):
                    where = space, phase.number, phase.begins, phase.goals.split, split, category
                    numbers = *where, *algorithm, score, estimate.value[column]
                    shape = len(values), len(table.columns) if category == MEAN else 1
                    rows.append(dict(zip(PHASE_COLUMNS, numbers, strict=False)))
                    rows[-1] |= matrices.interval_of(estimate, column, shape, bootstrap)
    return pd.DataFrame(rows, columns=list(PHASE_COLUMNS))


def predictions(results: Results) -> pd.DataFrame:
    """Predicted competence beside observed success on the same goals.

    A row for each run, estimator, point, split and category. Impossible goals are not played: their
    success is 0 by construction.
    """
    keys = [*RUN_COLUMNS, results.unit_column, "split", "category"]
    observed = results.tables["evaluation"][[*keys, "n", "success"]]
    merged = results.tables["competence"].drop(columns="n").merge(observed, on=keys, how="left")
    impossible = ~merged["category"].isin(results.categories.feasible)
    merged.loc[impossible, "success"] = 0.0
    merged.loc[impossible, "n"] = 1  # no sampling error; any count gives a standard error of 0
    unmatched = merged[merged["success"].isna()]
    if len(unmatched):
        row = unmatched.iloc[0]
        raise InputError(
            f"competence.csv: sampler {row['sampler']!r}, seed {row['seed']} predicts at "
            f"{results.unit_column} {row[results.unit_column]}, where {row['category']} "
            f"({row['split']}) is not evaluated"
        )
    return merged


CALIBRATION_KEYS = [*("goal_space", "split", "category", "sampler", "variant", "estimator", "seed")]


@register_statistic("calibration")
def calibration(results: Results) -> pd.DataFrame:
    """Error of the predicted competence of every run and category, mean over training."""
    return errors_of(predictions(results), results.unit_column)


def errors_of(frame: pd.DataFrame, unit_column: str) -> pd.DataFrame:
    """The statistic `calibration` of rows of `predictions`."""
    rows: list[Row] = []
    columns = ["competence", "success", "n", unit_column]
    frame = frame.sort_values(unit_column, kind="stable")
    for keys, group in frame.groupby(CALIBRATION_KEYS, sort=True):
        error = matrices.calibration_error(*group[columns].to_numpy(dtype=np.float64).T)
        rows.append({**dict(zip(CALIBRATION_KEYS, keys, strict=True)), **error})
        rows[-1]["points"] = len(group)
    names = ("bias", "mean_absolute_error", "root_mean_square_error", "standard_error", "points")
    return pd.DataFrame(rows, columns=[*CALIBRATION_KEYS, *names])


@register_statistic("practice")
def practice(results: Results) -> pd.DataFrame:
    """Training episodes of each run and category: number, share and success."""
    keys = ["goal_space", "sampler", "variant", "seed"]
    totals = results.tables["practice"].groupby([*keys, "category"], sort=True)
    frame = totals[["n", "successes"]].sum().reset_index()
    frame["share"] = frame["n"] / frame.groupby(keys)["n"].transform("sum")
    frame["success"] = frame["successes"] / frame["n"].where(frame["n"] > 0)
    return frame.rename(columns={"n": "episodes"})


COST_COLUMNS = (
    *("updates", "steps", "episodes", "estimation_episodes", "wall_seconds", "peak_memory_mb"),
    *("threads", "restarts", "device"),
)


@register_statistic("cost")
def cost(results: Results) -> pd.DataFrame:
    """Cost of each run, from its manifest; empty where the manifest lacks a number."""
    columns = [*RUN_COLUMNS, *COST_COLUMNS]
    rows = [
        {column: run.get(column) for column in columns}
        | {"estimation_episodes": run["estimation_episodes"].get(run["driver"], 0)}
        for run in results.manifest["runs"]
    ]
    return pd.DataFrame(rows, columns=columns)


# --- computing, writing and loading ---


def compute(results: Results, names: Iterable[str] | None = None) -> dict[str, pd.DataFrame]:
    """Compute statistics by name; without `names`, all that are registered.

    Raises:
        InputError: unknown name, or a user's function failed or returned no tidy table.
    """
    frames = {}
    for spec in [STATISTICS.find(name) for name in (STATISTICS if names is None else names)]:
        frame = call_checked(spec, spec.compute, results, kind=pd.DataFrame)
        columns, index = list(frame.columns), list(frame.index.names)
        named = all(isinstance(name, str) for name in columns)
        if not columns or len(set(columns)) < len(columns) or not named:
            raise refuse(spec, f"gave the columns {shown(columns)}; allowed: texts, each once")
        if any(name is not None for name in index):
            raise refuse(
                spec,
                f"gave an index with names, {shown(index)}, which a CSV file loses; allowed: "
                "columns, as of reset_index()",
            )
        frames[spec.name] = frame
    return frames


def write(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write each statistic as CSV, rounded to six digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write_atomically(folder / f"{name}.csv", text.encode())


AGAIN = "`python -m analysis statistics`"
OF_EVERY_RUN = ("cost", "scores")
"""Statistics with rows for each algorithm in each goal space."""
OF_ALL_SEEDS = ("aggregates", "comparison")
"""Statistics of which every row has the number of runs."""

# Read as text: a variant may be called 1 or NA.
NAMES = (
    *("sampler", "variant", "baseline", "baseline_variant", "goal_space", "estimator"),
    "category",
)


def load(
    folder: Path, names: Iterable[str] | None = None, results: Results | None = None
) -> dict[str, pd.DataFrame]:
    """Read statistics that `write` wrote; without `names`, all that are registered.

    results: tables that they must match; None: not checked.

    Raises:
        InputError: a file is missing, is no table, or is of other samplers or goal spaces.
    """
    frames = {}
    for name in STATISTICS if names is None else names:
        path = folder / f"{name}.csv"
        if not path.is_file():
            raise InputError(f"{path}: file is missing; run {AGAIN} first")
        try:
            frames[name] = pd.read_csv(path, converters=dict.fromkeys(NAMES, str))
        except (ValueError, OSError):  # those of pandas are ValueErrors
            raise InputError(f"{path}: not a CSV table; run {AGAIN} again") from None
        if results is not None and is_built_in(STATISTICS[name]):
            _check_matches(path, frames[name], results)
    return frames


def _check_matches(path: Path, frame: pd.DataFrame, results: Results) -> None:
    keys = ("goal_space", *Algorithm._fields)
    if not set(keys) <= set(frame.columns):
        raise InputError(f"{path}: lacks columns of {', '.join(keys)}; run {AGAIN} again")
    expected = {(space, *algorithm) for space, _, algorithm in matrices.algorithms_of(results)}
    actual = distinct(frame, keys)
    wrong = actual - expected or (expected - actual if path.stem in OF_EVERY_RUN else set())
    if wrong:
        goal_space, *algorithm = min(wrong)
        raise InputError(
            f"{path}: of other runs than the tables: {' '.join(algorithm)} on {goal_space} is in "
            f"one of the two only; run {AGAIN} on these tables"
        )
    if path.stem not in OF_ALL_SEEDS:
        return
    for goal_space, *algorithm, runs in distinct(frame, (*keys, "runs")):
        seeds = results.seeds_of(Algorithm(*algorithm), goal_space)
        if runs != len(seeds):
            raise InputError(
                f"{path}: {' '.join(algorithm)} on {goal_space} has {runs} runs, in the tables "
                f"{len(seeds)}; run {AGAIN} on these tables"
            )
