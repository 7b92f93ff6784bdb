"""Run folders in, one set of tidy tables out; and the checks that make a comparison fair.

A run leaves four CSV tables and a manifest. `combine` stacks the runs of an experiment, `diagnose`
refuses what cannot be compared (a missing seed, another evaluation point, another configuration)
before any statistic is computed.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from magellan.errors import InputError
from magellan.littlezoo.goals import CATEGORIES
from magellan.training.record import COLUMNS

SPLITS = ("train", "unseen")
FEASIBLE = CATEGORIES[1:]
RUN_COLUMNS = ("sampler", "goal_space", "seed")
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TableSpec:
    """Columns of one table of a run, the ones that identify a row, and the ones kept in [0, 1]."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    fractions: tuple[str, ...] = ()
    # training.csv alone may hold gaps: the actor's loss before its warm-up, the competence loss of
    # a sampler without a competence head.
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


@dataclass(frozen=True)
class Results:
    """The combined tables of one experiment.

    Attributes:
        tables: one frame for each name in `TABLES`, with leading columns sampler, goal_space, seed.
        manifest: `experiment` (the configuration asked for) and `runs` (one manifest each).
    """

    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    @property
    def experiment(self) -> Mapping[str, Any]:
        """Configuration of the experiment."""
        return self.manifest["experiment"]

    @property
    def samplers(self) -> tuple[str, ...]:
        """Samplers in the order of the configuration."""
        return tuple(self.experiment["samplers"])

    @property
    def goal_spaces(self) -> tuple[str, ...]:
        """Goal spaces in the order of the configuration."""
        return tuple(self.experiment["goal_spaces"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Root seeds in the order of the configuration."""
        return tuple(self.experiment["seeds"])

    def table(self, name: str, **where: str | int) -> pd.DataFrame:
        """Rows of one table with the given values, for instance `sampler="random"`."""
        frame = self.tables[name]
        for column, value in where.items():
            frame = frame[frame[column] == value]
        return frame


def combine(run_folders: Iterable[Path], experiment: Mapping[str, Any]) -> Results:
    """Stack the tables of finished runs, ordered by sampler, goal space and seed.

    Raises:
        InputError: a file is missing or malformed, or `diagnose` finds the runs not comparable.
    """
    folders = list(run_folders)
    if not folders:
        raise InputError("combine: no run folder was given")
    manifests = [_read_manifest(folder / MANIFEST) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        _check_run_manifest(manifest, folder)
    tables = {name: _stack(name, folders, manifests, experiment) for name in TABLES}
    kept = {key: value for key, value in experiment.items() if key != "results"}
    order = sorted(manifests, key=lambda run: _run_order(run, experiment))
    results = Results(tables, {"experiment": kept, "runs": order})
    diagnose(results)
    return results


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
    manifest = _read_manifest(folder / MANIFEST)
    if not {"experiment", "runs"} <= manifest.keys():
        raise InputError(f"{folder / MANIFEST}: needs the keys experiment and runs")
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
    load(source / "tables")
    (target / "tables").mkdir(parents=True, exist_ok=True)
    for name in (*(f"{table}.csv" for table in TABLES), MANIFEST):
        shutil.copyfile(source / "tables" / name, target / "tables" / name)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"{path}: not valid JSON") from None
    if not isinstance(manifest, dict):
        raise InputError(f"{path}: not a JSON object")
    return manifest


def _check_run_manifest(manifest: Mapping[str, Any], folder: Path) -> None:
    missing = sorted({"schema_version", "status", "config", *RUN_COLUMNS} - manifest.keys())
    if missing:
        raise InputError(f"{folder / MANIFEST}: key {missing[0]} is missing")
    if manifest["schema_version"] != 1:
        found = manifest["schema_version"]
        raise InputError(f"{folder / MANIFEST}: schema_version {found!r} is unknown; allowed: 1")
    if manifest["status"] != "complete":
        raise InputError(f"{folder}: the run is {manifest['status']!r}, not 'complete'")


def _read_csv(path: Path, columns: tuple[str, ...], spec: TableSpec) -> pd.DataFrame:
    types = {column: str for column in columns if column in TEXT_COLUMNS}
    try:
        # round_trip: a number must come out of the combined table as it went into the run's.
        frame = pd.read_csv(path, dtype=types, float_precision="round_trip")
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
        raise InputError(f"{path}: not a CSV table") from None
    if tuple(frame.columns) != columns:
        raise InputError(f"{path}: columns are {list(frame.columns)}; expected {list(columns)}")
    _check_values(frame, path, spec)
    return frame


def _check_values(frame: pd.DataFrame, path: Path, spec: TableSpec) -> None:
    """No text in numeric columns, no NaN, fractions within [0, 1]."""
    for column in frame.columns:
        values = frame[column]
        if column not in TEXT_COLUMNS and len(frame) and not pd.api.types.is_numeric_dtype(values):
            raise InputError(f"{path}: column {column} holds something that is not a number")
        if spec.complete and values.isna().any():
            line = int(np.flatnonzero(values.isna())[0]) + 2
            raise InputError(f"{path}: line {line} has no value in column {column}")
        if column in spec.fractions and len(frame) and not values.between(0.0, 1.0).all():
            line = int(np.flatnonzero(~values.between(0.0, 1.0))[0]) + 2
            raise InputError(f"{path}: line {line}: {column} is not between 0 and 1")
    for column, allowed in (("split", SPLITS), ("category", CATEGORIES)):
        if column in frame.columns and not frame[column].isin(allowed).all():
            found = frame[column][~frame[column].isin(allowed)].iloc[0]
            raise InputError(
                f"{path}: {column} {found!r} is unknown; allowed: {', '.join(allowed)}"
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
            or another is there, when evaluation points, categories or numbers of evaluated goals
            differ within a goal space, or when two runs have different configurations.
    """
    _check_grid(results)
    _check_same_configuration(results.manifest["runs"])
    for name, spec in TABLES.items():
        _check_rows_unique(results.tables[name], name, spec)
    for goal_space in results.goal_spaces:
        _check_same_rows(results, "evaluation", goal_space, ("episode", "split", "category", "n"))
        _check_same_rows(results, "practice", goal_space, ("episode", "category"))
        _check_evaluated_categories(results, goal_space)
        for sampler in results.samplers:
            columns = ("episode", "split", "category", "n")
            _check_same_rows(results, "competence", goal_space, columns, sampler)


def _name(run: tuple) -> str:
    return f"sampler {run[0]!r}, goal space {run[1]!r}, seed {run[2]}"


def _runs_in(frame: pd.DataFrame) -> set[tuple]:
    return set(frame[list(RUN_COLUMNS)].drop_duplicates().itertuples(index=False, name=None))


def _check_grid(results: Results) -> None:
    declared = list(itertools.product(results.samplers, results.goal_spaces, results.seeds))
    manifests = [tuple(run[column] for column in RUN_COLUMNS) for run in results.manifest["runs"]]
    places = {
        "manifest.json": set(manifests),
        "evaluation.csv": _runs_in(results.tables["evaluation"]),
        "practice.csv": _runs_in(results.tables["practice"]),
    }
    for place, found in places.items():
        for run in declared:
            if run not in found:
                raise InputError(f"{place}: no run for {_name(run)}, which the experiment declares")
        for run in sorted(found, key=str):
            if run not in declared:
                raise InputError(f"{place}: undeclared run for {_name(run)}")
    for table in ("competence", "training"):
        for run in sorted(_runs_in(results.tables[table]) - set(declared), key=str):
            raise InputError(f"{table}.csv: undeclared run for {_name(run)}")
    for run in declared:
        if manifests.count(run) > 1:
            raise InputError(f"manifest.json: two runs for {_name(run)}")


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
            name = _name(tuple(run[column] for column in RUN_COLUMNS))
            raise InputError(f"manifest.json: {key} is {value!r} for {name}, {wanted!r} elsewhere")


def _check_rows_unique(frame: pd.DataFrame, name: str, spec: TableSpec) -> None:
    columns = [*RUN_COLUMNS, *spec.keys]
    twice = frame[frame.duplicated(columns)]
    if len(twice):
        row = twice.iloc[0]
        at = ", ".join(f"{key} {row[key]}" for key in spec.keys)
        run = tuple(row[column] for column in RUN_COLUMNS)
        raise InputError(f"{name}.csv: two rows at {at} for {_name(run)}")


def _check_same_rows(
    results: Results,
    name: str,
    goal_space: str,
    columns: tuple[str, ...],
    sampler: str | None = None,
) -> None:
    """All runs of a goal space (of one sampler, if given) have the same values in `columns`."""
    expected: set[tuple] | None = None
    samplers = (sampler,) if sampler else results.samplers
    frame = results.table(name, goal_space=goal_space)
    for run in itertools.product(samplers, (goal_space,), results.seeds):
        mine = frame[(frame["sampler"] == run[0]) & (frame["seed"] == run[2])]
        rows = set(mine[list(columns)].itertuples(index=False, name=None))
        if expected is None:
            expected, first = rows, run
        elif rows != expected:
            odd = min(rows ^ expected)
            at = ", ".join(f"{key} {value}" for key, value in zip(columns, odd, strict=True))
            has, lacks = (run, first) if odd in rows else (first, run)
            raise InputError(
                f"{name}.csv: {at} is there for {_name(has)} but not for {_name(lacks)}"
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
