"""Runs of several phases: they are compared in their last one, and shown phase by phase.

Updates, steps and episodes of a phase are counted from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.results import Results, rows_where
from magellan.core.columns import PHASE

COUNTS = ("update", "step", "episode")
RUNS = list(RUN_COLUMNS)


class Goals(NamedTuple):
    """Goals that a phase practises."""

    goal_space: str
    seed: int
    split: str


class OnePhase(NamedTuple):
    """One phase of the runs of a variant.

    Attributes:
        number: from 1.
        begins: length of a run at which it begins, in the unit of the results.
        goals: those that it practises.
        replaces: whether they are others than those of the phase before.
        named: whether this phase and all before it name their sampler, so that runs of every
            sampler may begin with the same ones.
        results: its rows.
    """

    number: int
    begins: int
    goals: Goals
    replaces: bool
    named: bool
    results: Results


def last_phase(results: Results) -> Results:
    """The rows of each run's last phase, with updates, steps and episodes since its beginning.

    Where a phase goes on with the goals of the one before, that one's last evaluation is its first.
    Results without phases are given back as they are. Those with phases stay at hand, as `whole`.
    """
    if not results.has_phases:
        return results
    last = results.tables["evaluation"].groupby(RUNS, sort=False)[PHASE].max()
    return Results(_cut(results, last), results.manifest, results)


def each_phase(results: Results) -> Iterator[OnePhase]:
    """Every phase of every variant, in order; nothing where no run has several."""
    whole = results.whole
    if whole is None:
        return
    for variant in dict.fromkeys(run.variant for run in whole.runs):
        mine = _of_variant(whole, variant)
        config = mine.manifest["runs"][0]["config"]
        goals = goals_of_phases(config)
        listed = _given(config)
        begins = [0, *(given["until"] for given in listed[:-1])]
        for at, begin in enumerate(begins):
            replaces = at > 0 and goals[at] != goals[at - 1]
            named = all(given.get("sampler") for given in listed[: at + 1])
            yield OnePhase(at + 1, begin, goals[at], replaces, named, _only(mine, at + 1))


def goals_of_phases(config: Mapping[str, Any]) -> list[Goals]:
    """Goals of each phase, from the configuration in a run's manifest; one where it has none."""
    run = {"seed": 0, "split": "train", **(config.get("goals") or {})}
    found = []
    for given in _given(config):
        own = {key: value for key, value in (given.get("goals") or {}).items() if value is not None}
        found.append(Goals(given.get("goal_space") or config["goal_space"], **{**run, **own}))
    return found


def practised_split(results: Results) -> str:
    """Split of the goals that runs practise at their end; that of training where they differ."""
    found = {goals_of_phases(run["config"])[-1].split for run in results.manifest["runs"]}
    return found.pop() if len(found) == 1 else "train"


def _given(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Phases as a configuration lists them."""
    return config.get("phases") or ({},)


def _of_variant(results: Results, variant: str) -> Results:
    runs = [run for run in results.manifest["runs"] if run["variant"] == variant]
    tables = {name: rows_where(frame, variant=variant) for name, frame in results.tables.items()}
    return Results(tables, {**results.manifest, "runs": runs})


def _only(results: Results, number: int) -> Results:
    """One phase of runs that all have it."""
    runs = pd.MultiIndex.from_frame(results.tables["evaluation"][RUNS].drop_duplicates())
    return Results(_cut(results, pd.Series(number, index=runs)), results.manifest)


def _cut(results: Results, phases: pd.Series) -> dict[str, pd.DataFrame]:
    """All tables, with one phase of each run: the number that `phases` has for it."""
    begins = _beginnings(results.tables["evaluation"], phases)
    return {
        name: _cut_table(frame, phases, begins, results.at)
        for name, frame in results.tables.items()
    }


def _beginnings(evaluation: pd.DataFrame, phases: pd.Series) -> pd.DataFrame:
    """Where these phases begin: the last evaluation of the phase before, or 0."""
    before = evaluation[evaluation[PHASE] < _of_run(evaluation, phases)]
    found = before.groupby(RUNS, sort=False)[list(COUNTS)].max()
    return found.reindex(phases.index, fill_value=0)


def _cut_table(
    frame: pd.DataFrame, phases: pd.Series, begins: pd.DataFrame, at: str
) -> pd.DataFrame:
    """The rows of these phases, and evaluations at their beginning where it lacks them."""
    phase = _of_run(frame, phases)
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
