"""Read tables from CSV files; invalid values are refused with a one-line error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.results import SPLITS, TABLES, TEXT_COLUMNS, WHOLE_COLUMNS, TableSpec
from magellan.core.columns import PHASE
from magellan.core.errors import InputError, shown
from magellan.worlds import Categories

# Tables have six significant digits: a share is off by at most half a unit of the seventh.
ROUNDING = 6e-7
# Only in columns of numbers: a variant may be called NA.
GAPS = ("", "nan", "NaN")


def read_table(
    folder: Path, name: str, categories: Categories, combined: bool = False
) -> pd.DataFrame:
    """Read a table of a run, or of all runs of an experiment.

    categories: of the world of the runs.

    Raises:
        InputError: one line with file, line, column, value and what is allowed.
    """
    path = folder / f"{name}.csv"
    frame = read_columns(path, TABLES[name], RUN_COLUMNS if combined else ())
    _check_rows(frame, name, path, categories)
    return frame


def read_columns(path: Path, spec: TableSpec, leading: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a table and check each column by itself.

    leading: columns before those of `spec`; runs of several phases have a column `phase` between.
    Columns of `spec.later` are added where they are absent.

    Raises:
        InputError: see `read_table`.
    """
    columns = (*leading, *spec.columns)
    types = {column: str for column in columns if column in TEXT_COLUMNS}
    gaps = {column: GAPS for column in columns if column not in TEXT_COLUMNS}
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        # round_trip: combined tables must have the exact numbers of the runs' tables.
        frame = pd.read_csv(
            io.BytesIO(content),
            dtype=types,
            na_values=gaps,
            keep_default_na=False,
            float_precision="round_trip",
            low_memory=False,
        )
    except (ValueError, OverflowError):  # those of pandas are ValueErrors
        raise InputError(f"{path}: not a CSV table in UTF-8") from None
    older = spec.columns[: len(spec.columns) - len(spec.later)]
    if tuple(frame.columns) in ((*leading, *older), (*leading, PHASE, *older)):
        frame = frame.assign(**dict.fromkeys(spec.later, np.nan))
    if tuple(frame.columns) not in (columns, (*leading, PHASE, *spec.columns)):
        names = ", ".join(map(str, frame.columns))
        raise InputError(f"{path}: columns are {shown(names)}; allowed: {', '.join(columns)}")
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{path}: rows have more cells than the {len(columns)} columns")
    if not content.endswith(b"\n"):
        raise InputError(f"{path}: ends in the middle of a line; the file is not whole")
    for column in frame.columns if len(frame) else ():
        _check_column(frame[column], path, spec)
    return frame


def _check_column(values: pd.Series, path: Path, spec: TableSpec) -> None:
    name, array = str(values.name), values.to_numpy()
    if name in TEXT_COLUMNS:
        empty = values.isna() | (values == "")
    else:
        if array.dtype.kind not in "iuf":
            numbers = pd.to_numeric(values, errors="coerce")
            _refuse(values, values.notna() & numbers.isna(), path, "a number")
            raise InputError(
                f"{path}: column {name} holds something that is not a number; allowed: numbers"
            )
        empty = np.isnan(array)
    if name not in spec.gaps and empty.any():
        line = np.flatnonzero(empty)[0] + 2
        raise InputError(f"{path}: line {line} has no value in column {name}")
    if name in WHOLE_COLUMNS:
        with np.errstate(invalid="ignore"):  # infinity has no remainder
            _refuse(values, (array < 0) | (array % 1 != 0), path, "whole numbers of 0 or more")
        if array.dtype.kind == "f":
            raise InputError(f"{path}: column {name} holds fractions; allowed: whole numbers")
    if name in spec.fractions:
        _refuse(values, ~empty & ~((array >= 0.0) & (array <= 1.0)), path, "between 0 and 1")
    if name in spec.amounts:
        _refuse(values, array < 0, path, "0 or more")
    if name not in TEXT_COLUMNS:
        _refuse(values, np.isinf(array), path, "finite numbers")


def _check_rows(frame: pd.DataFrame, name: str, path: Path, categories: Categories) -> None:
    """Check columns that limit each other, and names of splits and categories."""
    for column, allowed in (("split", SPLITS), ("category", categories.names)):
        if column in frame.columns:
            _refuse(frame[column], ~frame[column].isin(allowed), path, ", ".join(allowed))
    if name == "practice":
        successes = frame["successes"]
        _refuse(successes, successes > frame["n"], path, "at most n")
    if PHASE in frame.columns:
        _refuse(frame[PHASE], frame[PHASE] < 1, path, "1 or more")
    if name in ("evaluation", "competence"):
        _refuse(frame["n"], frame["n"] < 1, path, "1 or more")
    if name == "evaluation" and len(frame):
        nearest = (frame["success"] * frame["n"]).round() / frame["n"]
        invalid = (frame["success"] - nearest).abs() > ROUNDING
        _refuse(frame["success"], invalid, path, "a multiple of 1/n, as n episodes give it")


def _refuse(values: pd.Series, invalid: Any, path: Path, allowed: str) -> None:
    """Raise InputError for the first invalid value; line 1 is the header."""
    rows = np.flatnonzero(invalid)
    if len(rows):
        value = values.iloc[rows[0]]
        text = shown(value.item() if isinstance(value, np.generic) else value)
        raise InputError(f"{path}: line {rows[0] + 2}: {values.name} is {text}; allowed: {allowed}")
