"""Runs of several phases are compared in their last one, counted from its beginning."""

from __future__ import annotations

import pandas as pd

from analysis.grid import RUN_COLUMNS
from analysis.results import Results
from magellan.training.record import PHASE

COUNTS = ("update", "step", "episode")
RUNS = list(RUN_COLUMNS)


def last_phase(results: Results) -> Results:
    """The rows of each run's last phase, with updates, steps and episodes since its beginning.

    Where a phase goes on with the goals of the one before, that one's last evaluation is its first.
    Results without phases are given back as they are.
    """
    if not results.has_phases:
        return results
    evaluation = results.tables["evaluation"]
    last = evaluation.groupby(RUNS, sort=False)[PHASE].max()
    begins = _beginnings(evaluation, last)
    cut = {name: _cut(frame, last, begins, results.at) for name, frame in results.tables.items()}
    return Results(cut, results.manifest)


def _beginnings(evaluation: pd.DataFrame, last: pd.Series) -> pd.DataFrame:
    """Where the last phase of each run begins: the last evaluation of the phase before, or 0."""
    before = evaluation[evaluation[PHASE] < _of_run(evaluation, last)]
    found = before.groupby(RUNS, sort=False)[list(COUNTS)].max()
    return found.reindex(last.index, fill_value=0)


def _cut(frame: pd.DataFrame, last: pd.Series, begins: pd.DataFrame, at: str) -> pd.DataFrame:
    """The rows of the last phase, and evaluations at its beginning where it lacks them."""
    phase = _of_run(frame, last)
    rows = frame[frame[PHASE] == phase]
    if "split" in frame.columns:
        rows = pd.concat([_first_ones(frame, phase, rows, begins, at), rows])
    rows = rows.drop(columns=PHASE).sort_index(kind="stable").reset_index(drop=True)
    for column in COUNTS:
        if column in rows.columns:
            rows[column] -= _of_run(rows, begins[column])
    return rows


def _first_ones(
    frame: pd.DataFrame, phase: pd.Series, rows: pd.DataFrame, begins: pd.DataFrame, at: str
) -> pd.DataFrame:
    """Evaluations of the phase before, at its end, of runs that were not evaluated again there."""
    evaluated = rows[rows[at] == _of_run(rows, begins[at])][RUNS].drop_duplicates()
    ended = frame[(frame[PHASE] == phase - 1) & (frame[at] == _of_run(frame, begins[at]))]
    again = pd.MultiIndex.from_frame(ended[RUNS]).isin(pd.MultiIndex.from_frame(evaluated))
    return ended[~again]


def _of_run(frame: pd.DataFrame, values: pd.Series) -> pd.Series:
    """For each row what its run has."""
    found = values.reindex(pd.MultiIndex.from_frame(frame[RUNS])).to_numpy()
    return pd.Series(found, index=frame.index)
