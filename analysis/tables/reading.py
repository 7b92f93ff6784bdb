"""Tables from CSV files, refused in one line where a value cannot be."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables.results import (
    RUN_COLUMNS,
    SPLITS,
    TABLES,
    TEXT_COLUMNS,
    WHOLE_COLUMNS,
    TableSpec,
)
from magellan.core.columns import PHASE
from magellan.core.errors import InputError, shown
from magellan.worlds import Categories

# Tables have six significant digits: a share is off by half a unit of the seventh at most.
ROUNDING = 6e-7
# In a column of numbers. A variant may have the name NA.
GAPS = ("", "nan", "NaN")


def read_table(
    folder: Path, name: str, categories: Categories, combined: bool = False
) -> pd.DataFrame:
    """Table of a run, or of all runs of an experiment.

    categories: of the world that it was made in.

    Raises:
        InputError: one line with file, line, column, value and what is allowed.
    """
    path = folder / f"{name}.csv"
    frame = read_columns(path, TABLES[name], RUN_COLUMNS if combined else ())
    _check_rows(frame, name, path, categories)
    return frame


def read_columns(path: Path, spec: TableSpec, named: tuple[str, ...] = ()) -> pd.DataFrame:
    """Table of which each column is checked by itself.

    named: columns before those of `spec`.

    Raises:
        InputError: see `read_table`.
    """
    frame = _read_csv(path, named, spec)
    for column in frame.columns if len(frame) else ():
        _check_column(frame[column], path, spec)
    return frame


def _read_csv(path: Path, named: tuple[str, ...], spec: TableSpec) -> pd.DataFrame:
    """The file as it is, with those of `spec.later`; runs of several phases have one more column.

    named: columns before that one; those of `spec` are behind it.
    """
    columns = (*named, *spec.columns)
    types = {column: str for column in columns if column in TEXT_COLUMNS}
    gaps = {column: GAPS for column in columns if column not in TEXT_COLUMNS}
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        # round_trip: a number must come out of the combined table as it went into the run's.
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
    if tuple(frame.columns) in ((*named, *older), (*named, PHASE, *older)):
        frame = frame.assign(**dict.fromkeys(spec.later, np.nan))
    if tuple(frame.columns) not in (columns, (*named, PHASE, *spec.columns)):
        found = ", ".join(map(str, frame.columns))
        raise InputError(f"{path}: columns are {shown(found)}; allowed: {', '.join(columns)}")
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{path}: rows have more cells than the {len(columns)} columns")
    if not content.endswith(b"\n"):
        raise InputError(f"{path}: ends in the middle of a line; the file is not whole")
    return frame


def _check_column(values: pd.Series, path: Path, spec: TableSpec) -> None:
    """Kind and range of one column; no gaps but where they are allowed."""
    name = str(values.name)
    if name not in TEXT_COLUMNS:
        _check_numbers(values, path)
    if name not in spec.gaps:
        empty = np.flatnonzero(values.isna() | (values == ""))
        if len(empty):
            raise InputError(f"{path}: line {empty[0] + 2} has no value in column {name}")
    if name in WHOLE_COLUMNS:
        _check_whole(values, path)
    if name in spec.fractions:
        outside = values.notna() & ~values.between(0.0, 1.0)
        _refuse(values, outside, path, "between 0 and 1")
    if name in spec.amounts:
        _refuse(values, values < 0, path, "0 or more")
    if name not in TEXT_COLUMNS:
        _refuse(values, np.isinf(values.astype(float)), path, "finite numbers")


def _check_numbers(values: pd.Series, path: Path) -> None:
    kind = pd.api.types
    numeric = kind.is_numeric_dtype(values) and not kind.is_bool_dtype(values)
    number = values.notna() if numeric else pd.to_numeric(values, errors="coerce").notna()
    _refuse(values, values.notna() & ~number, path, "a number")
    if not numeric:
        raise InputError(
            f"{path}: column {values.name} holds something that is not a number; allowed: numbers"
        )


def _check_whole(values: pd.Series, path: Path) -> None:
    bad = (values < 0) | ((values % 1) != 0)
    _refuse(values, bad, path, "whole numbers of 0 or more")
    if not pd.api.types.is_integer_dtype(values):
        raise InputError(f"{path}: column {values.name} holds fractions; allowed: whole numbers")


def _check_rows(frame: pd.DataFrame, name: str, path: Path, categories: Categories) -> None:
    """Columns that limit each other, and words that must be known."""
    for column, allowed in (("split", SPLITS), ("category", categories.names)):
        if column in frame.columns:
            _refuse(frame[column], ~frame[column].isin(allowed), path, ", ".join(allowed))
    if name == "practice":
        successes = frame["successes"]
        _refuse(successes, successes > frame["n"], path, "at most n")
        impossible = ~frame["category"].isin(categories.feasible)
        _refuse(successes, impossible & (successes > 0), path, "0 for an impossible goal")
    if PHASE in frame.columns:
        _refuse(frame[PHASE], frame[PHASE] < 1, path, "1 or more")
    if name in ("evaluation", "competence"):
        _refuse(frame["n"], frame["n"] < 1, path, "1 or more")
    if name == "evaluation" and len(frame):
        nearest = (frame["success"] * frame["n"]).round() / frame["n"]
        odd = (frame["success"] - nearest).abs() > ROUNDING
        _refuse(frame["success"], odd, path, "a multiple of 1/n, as n episodes give it")


def _refuse(values: pd.Series, bad: pd.Series, path: Path, allowed: str) -> None:
    """Raise InputError for the first bad value; line 1 is the header."""
    rows = np.flatnonzero(bad)
    if len(rows):
        found = values.iloc[rows[0]]
        value = shown(found.item() if isinstance(found, np.generic) else found)
        raise InputError(
            f"{path}: line {rows[0] + 2}: {values.name} is {value}; allowed: {allowed}"
        )
