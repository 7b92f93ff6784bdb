"""Run folders in, one set of tidy tables out; and the checks that make a comparison fair.

A run leaves four CSV tables and a manifest. `combine` stacks the runs of an experiment, `diagnose`
refuses what cannot be compared (a missing seed, another evaluation point, another configuration)
before any statistic is computed. Runs may be missing only if the manifest lists them as missing.
"""

from __future__ import annotations

import functools
import io
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.coverage import (
    Run,
    declared_runs,
    missing_run,
    run_name,
    run_names,
    run_of,
    seeds_by_sampler,
)
from analysis.manifests import MANIFEST, read_combined_manifest, read_run_manifest
from magellan.errors import InputError, shown
from magellan.littlezoo.goals import CATEGORIES
from magellan.training.record import COLUMNS

SPLITS = ("train", "unseen")
FEASIBLE = CATEGORIES[1:]
RUN_COLUMNS = ("sampler", "goal_space", "seed")


@dataclass(frozen=True)
class TableSpec:
    """Columns of one table of a run, the ones that identify a row, and the ones kept in [0, 1]."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    fractions: tuple[str, ...] = ()
    # training.csv alone may hold gaps, in its fractional columns: the actor's loss before its
    # warm-up, the competence loss of a sampler without a competence head.
    complete: bool = True


TABLES: Mapping[str, TableSpec] = {
    "evaluation": TableSpec(COLUMNS["evaluation"], ("episode", "split", "category"), ("success",)),
    "competence": TableSpec(
        COLUMNS["competence"],
        ("episode", "split", "category"),
        ("competence", "delayed_competence", "learning_progress"),
    ),
    "practice": TableSpec(COLUMNS["practice"], ("episode", "category")),
    "training": TableSpec(COLUMNS["training"], ("update",), complete=False),
}

TEXT_COLUMNS = ("sampler", "goal_space", "split", "category")
WHOLE_COLUMNS = ("seed", "update", "step", "episode", "n", "successes")


@dataclass(frozen=True)
class Results:
    """The combined tables of one experiment.

    Attributes:
        tables: one frame for each name in `TABLES`, with leading columns sampler, goal_space, seed.
        manifest: `experiment` (the configuration asked for), `runs` (one manifest each) and
            `missing` (declared runs that are not there, each with its reason).
    """

    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    @property
    def experiment(self) -> Mapping[str, Any]:
        """Configuration of the experiment."""
        return self.manifest["experiment"]

    @property
    def samplers(self) -> tuple[str, ...]:
        """Declared samplers, in the order of the configuration."""
        return tuple(self.experiment["samplers"])

    @property
    def goal_spaces(self) -> tuple[str, ...]:
        """Goal spaces that have a run, in the order of the configuration."""
        return tuple(name for name in self.experiment["goal_spaces"] if name in self._seeds)

    @property
    def runs(self) -> list[Run]:
        """The runs that are there: sampler, goal space and seed of each."""
        return [run_of(manifest) for manifest in self.manifest["runs"]]

    def samplers_in(self, goal_space: str) -> tuple[str, ...]:
        """Samplers that have a run in a goal space, in the order of the configuration."""
        return tuple(name for name in self.samplers if name in self._seeds[goal_space])

    def seeds_of(self, sampler: str, goal_space: str) -> tuple[int, ...]:
        """Seeds of a sampler's runs in a goal space, in the order of the configuration."""
        there = self._seeds[goal_space][sampler]
        return tuple(seed for seed in self.experiment["seeds"] if seed in there)

    def seed_counts(self, goal_space: str) -> tuple[int, ...]:
        """Number of seeds of each sampler in a goal space, in the order of `samplers_in`."""
        samplers = self.samplers_in(goal_space)
        return tuple(len(self.seeds_of(sampler, goal_space)) for sampler in samplers)

    @functools.cached_property
    def _seeds(self) -> dict[str, dict[str, list[int]]]:
        return seeds_by_sampler(self.runs)

    def table(self, name: str, **where: str | int) -> pd.DataFrame:
        """Rows of one table with the given values, for instance `sampler="random"`."""
        frame = self.tables[name]
        for column, value in where.items():
            frame = frame[frame[column] == value]
        return frame


# How an experiment is run and where it lies; no part of what its tables are.
NOT_KEPT = ("results", "allow_incomplete")


def combine(
    run_folders: Iterable[Path], experiment: Mapping[str, Any], incomplete: Path | None = None
) -> Results:
    """Stack the tables of finished runs, ordered by sampler, goal space and seed.

    Args:
        run_folders: one per run.
        experiment: the grid asked for.
        incomplete: if given, runs of the grid may be missing; the results folder (with `runs` and
            `logs`) where the reasons are looked up.

    Raises:
        InputError: a file is missing or malformed, runs are missing, or `diagnose` finds the runs
            not comparable.
    """
    folders = list(run_folders)
    if not folders:
        raise InputError("combine: no run folder was given")
    manifests = [read_run_manifest(folder) for folder in folders]
    tables = {name: _stack(name, folders, manifests, experiment) for name in TABLES}
    kept = {key: value for key, value in experiment.items() if key not in NOT_KEPT}
    order = sorted(manifests, key=lambda run: _run_order(run, experiment))
    there = {run_of(manifest) for manifest in manifests}
    absent = [run for run in declared_runs(experiment) if run not in there]
    if absent and incomplete is None:
        raise InputError(f"{_missing_line('combine', absent, experiment)}")
    missing = [missing_run(incomplete, run) for run in absent] if incomplete else []
    results = Results(tables, {"experiment": kept, "runs": order, "missing": missing})
    diagnose(results)
    return results


def _missing_line(place: str, absent: list[Run], experiment: Mapping[str, Any]) -> str:
    declared = len(declared_runs(experiment))
    return (
        f"{place}: no run for {len(absent)} of {declared} that the experiment declares: "
        f"{run_names(absent)}"
    )


def write(results: Results, folder: Path) -> None:
    """Write the combined tables and their manifest; the manifest comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in results.tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    text = json.dumps(results.manifest, indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def load(folder: Path) -> Results:
    """Read combined tables and check them with `diagnose`."""
    if not folder.is_dir():
        raise InputError(f"tables: there is no folder {folder}")
    manifest = read_combined_manifest(folder)
    tables = {
        name: _read_csv(folder / f"{name}.csv", (*RUN_COLUMNS, *spec.columns), spec)
        for name, spec in TABLES.items()
    }
    results = Results(tables, manifest)
    diagnose(results)
    return results


def adopt(source: Path, target: Path) -> None:
    """Copy the tables and manifest of `source` to `target`, replacing what is there.

    Both are results folders (with a folder `tables` inside). The source is checked first, so that
    a broken set of tables never replaces a good one.
    """
    if source.resolve() == target.resolve():
        raise InputError(f"adopt: {target} is both source and target; allowed: two folders")
    load(source / "tables")
    (target / "tables").mkdir(parents=True, exist_ok=True)
    for name in (*(f"{table}.csv" for table in TABLES), MANIFEST):
        shutil.copyfile(source / "tables" / name, target / "tables" / name)


def _read_csv(path: Path, columns: tuple[str, ...], spec: TableSpec) -> pd.DataFrame:
    types = {column: str for column in columns if column in TEXT_COLUMNS}
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        # round_trip: a number must come out of the combined table as it went into the run's.
        frame = pd.read_csv(
            io.BytesIO(content), dtype=types, float_precision="round_trip", low_memory=False
        )
    except (ValueError, OverflowError):  # those of pandas are ValueErrors
        raise InputError(f"{path}: not a CSV table in UTF-8") from None
    if tuple(frame.columns) != columns:
        found = ", ".join(map(str, frame.columns))
        raise InputError(f"{path}: columns are {shown(found)}; allowed: {', '.join(columns)}")
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{path}: rows have more cells than the {len(columns)} columns")
    if not content.endswith(b"\n"):
        raise InputError(f"{path}: ends in the middle of a line; the file is not whole")
    _check_values(frame, path, spec)
    return frame


def _check_values(frame: pd.DataFrame, path: Path, spec: TableSpec) -> None:
    """No text in numeric columns, no NaN, counts whole, fractions within [0, 1]."""
    for column in frame.columns if len(frame) else ():
        _check_column(frame[column], path, spec)
    if {"n", "successes"} <= set(frame.columns):
        _refuse(frame["successes"], frame["successes"] > frame["n"], path, "at most n")
    for column, allowed in (("split", SPLITS), ("category", CATEGORIES)):
        if column in frame.columns:
            _refuse(frame[column], ~frame[column].isin(allowed), path, ", ".join(allowed))


def _check_column(values: pd.Series, path: Path, spec: TableSpec) -> None:
    name, whole = str(values.name), values.name in WHOLE_COLUMNS
    kind = pd.api.types
    if name not in TEXT_COLUMNS:
        numeric = kind.is_numeric_dtype(values) and not kind.is_bool_dtype(values)
        number = values.notna() if numeric else pd.to_numeric(values, errors="coerce").notna()
        _refuse(values, values.notna() & ~number, path, "a number")
        if not numeric:
            raise InputError(f"{path}: column {name} holds something that is not a number")
    if spec.complete or whole:
        empty = np.flatnonzero(values.isna())
        if len(empty):
            raise InputError(f"{path}: line {empty[0] + 2} has no value in column {name}")
    if whole:
        bad = (values < 0) | ((values % 1) != 0)
        _refuse(values, bad, path, "whole numbers of 0 or more")
        if not kind.is_integer_dtype(values):
            raise InputError(f"{path}: column {name} holds fractions; allowed: whole numbers")
    if name in spec.fractions:
        _refuse(values, ~values.between(0.0, 1.0), path, "between 0 and 1")


def _refuse(values: pd.Series, bad: pd.Series, path: Path, allowed: str) -> None:
    """Raise InputError for the first bad value; line 1 is the header."""
    rows = np.flatnonzero(bad)
    if len(rows):
        found = values.iloc[rows[0]]
        value = shown(found.item() if isinstance(found, np.generic) else found)
        raise InputError(
            f"{path}: line {rows[0] + 2}: {values.name} is {value}; allowed: {allowed}"
        )


def _run_order(run: Mapping[str, Any], experiment: Mapping[str, Any]) -> tuple[int, ...]:
    """Position of a run in the declared grid; undeclared ones come last and fail `diagnose`."""
    declared = (experiment["samplers"], experiment["goal_spaces"], experiment["seeds"])
    values = (run[column] for column in RUN_COLUMNS)
    return tuple(
        names.index(value) if value in names else len(names)
        for names, value in zip(declared, values, strict=True)
    )


def _stack(
    name: str,
    folders: list[Path],
    manifests: list[dict[str, Any]],
    experiment: Mapping[str, Any],
) -> pd.DataFrame:
    """One table of all runs, in the order of the grid; each run's rows stay as they are."""
    spec = TABLES[name]
    pairs = sorted(
        zip(manifests, folders, strict=True), key=lambda pair: _run_order(pair[0], experiment)
    )
    frames = []
    for manifest, folder in pairs:
        frame = _read_csv(folder / f"{name}.csv", spec.columns, spec)
        for position, column in enumerate(RUN_COLUMNS):
            frame.insert(position, column, manifest[column])
        frames.append(frame)
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


# --- diagnosis --------------------------------------------------------------------------------


def diagnose(results: Results) -> None:
    """Check that the runs can be compared.

    Raises:
        InputError: one line naming the sampler, goal space and seed, when a declared run is missing
            without being listed as missing or another is there, when evaluation points, categories
            or numbers of evaluated goals differ within a goal space, or when two runs have
            different configurations.
    """
    _check_grid(results)
    _check_same_configuration(results.manifest["runs"])
    for name, spec in TABLES.items():
        _check_rows_unique(results.tables[name], name, spec)
    for goal_space in results.goal_spaces:
        _check_same_rows(results, "evaluation", goal_space, ("episode", "split", "category", "n"))
        _check_same_rows(results, "practice", goal_space, ("episode", "category"))
        _check_evaluated_categories(results, goal_space)
        for sampler in results.samplers_in(goal_space):
            columns = ("episode", "split", "category", "n")
            _check_same_rows(results, "competence", goal_space, columns, sampler)


def _runs_in(frame: pd.DataFrame) -> set[tuple]:
    return set(frame[list(RUN_COLUMNS)].drop_duplicates().itertuples(index=False, name=None))


def _check_grid(results: Results) -> None:
    grid, listed = declared_runs(results.experiment), results.runs
    missing = [run_of(entry) for entry in results.manifest.get("missing", ())]
    for run in missing:
        if run not in grid or run in listed or missing.count(run) > 1:
            raise InputError(f"manifest.json: {run_name(run)} cannot be listed as missing")
    declared = [run for run in grid if run not in missing]
    absent = [run for run in declared if run not in listed]
    if absent:
        raise InputError(_missing_line("manifest.json", absent, results.experiment))
    places = {
        "manifest.json": set(listed),
        "evaluation.csv": _runs_in(results.tables["evaluation"]),
        "practice.csv": _runs_in(results.tables["practice"]),
    }
    for place, found in places.items():
        for run in declared:
            if run not in found:
                raise InputError(f"{place}: no rows for {run_name(run)}, which the manifest lists")
        for run in sorted(found, key=str):
            if run not in declared:
                raise InputError(f"{place}: undeclared run for {run_name(run)}")
    for table in ("competence", "training"):
        for run in sorted(_runs_in(results.tables[table]) - set(declared), key=str):
            raise InputError(f"{table}.csv: undeclared run for {run_name(run)}")
    for run in declared:
        if listed.count(run) > 1:
            raise InputError(f"manifest.json: two runs for {run_name(run)}")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _check_same_configuration(runs: list[Mapping[str, Any]]) -> None:
    """Runs of one experiment may differ in sampler, goal space and seed, and in nothing else."""
    first, *others = runs
    expected = _flat(first["config"])
    for run in others:
        config = _flat(run["config"])
        for key in sorted(expected.keys() | config.keys()):
            value, wanted = config.get(key), expected.get(key)
            if key in RUN_COLUMNS or value == wanted:
                continue
            name = run_name(run_of(run))
            raise InputError(f"manifest.json: {key} is {value!r} for {name}, {wanted!r} elsewhere")


def _check_rows_unique(frame: pd.DataFrame, name: str, spec: TableSpec) -> None:
    columns = [*RUN_COLUMNS, *spec.keys]
    twice = frame[frame.duplicated(columns)]
    if len(twice):
        row = twice.iloc[0]
        at = ", ".join(f"{key} {row[key]}" for key in spec.keys)
        raise InputError(f"{name}.csv: two rows at {at} for {run_name(run_of(row))}")


def _check_same_rows(
    results: Results,
    name: str,
    goal_space: str,
    columns: tuple[str, ...],
    sampler: str | None = None,
) -> None:
    """All runs of a goal space (of one sampler, if given) have the same values in `columns`."""
    expected: set[tuple] | None = None
    frame = results.table(name, goal_space=goal_space)
    for run in results.runs:
        if run[1] != goal_space or sampler not in (None, run[0]):
            continue
        mine = frame[(frame["sampler"] == run[0]) & (frame["seed"] == run[2])]
        rows = set(mine[list(columns)].itertuples(index=False, name=None))
        if expected is None:
            expected, first = rows, run
        elif rows != expected:
            odd = min(rows ^ expected)
            at = ", ".join(f"{key} {value}" for key, value in zip(columns, odd, strict=True))
            has, lacks = (run, first) if odd in rows else (first, run)
            raise InputError(
                f"{name}.csv: {at} is there for {run_name(has)} but not for {run_name(lacks)}"
            )


def _check_evaluated_categories(results: Results, goal_space: str) -> None:
    """Every evaluation point of a split has the same categories: matrices have no holes."""
    frame = results.table("evaluation", goal_space=goal_space)
    if "impossible" in set(frame["category"]):
        raise InputError(f"evaluation.csv: goal space {goal_space!r} has category 'impossible'")
    for split in SPLITS:
        rows = frame[frame["split"] == split]
        if rows.empty:
            raise InputError(f"evaluation.csv: goal space {goal_space!r} has no split {split!r}")
        cells = rows.groupby("episode")["category"].agg(frozenset)
        odd = cells[cells != cells.iloc[0]]
        if len(odd):
            lacking = min(odd.iloc[0] ^ cells.iloc[0])
            raise InputError(
                f"evaluation.csv: category {lacking!r} is not evaluated at every point of "
                f"goal space {goal_space!r}, split {split!r} (see episode {odd.index[0]})"
            )
