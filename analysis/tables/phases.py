"""Runs of several phases: compared in their last phase, and shown phase by phase.

Updates, steps and episodes are counted from the beginning of a phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.tables.grid import RUN_COLUMNS, Run, run_of
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

    named: whether this phase and all before it name their sampler, so that runs of all samplers may
    share them.
    """

    number: int  # from 1
    begins: int  # training length at which it begins, in the unit of the results
    goals: Goals  # that it practises
    replaces: bool  # whether its goals differ from those of the phase before
    named: bool
    results: Results  # its rows


def _begun_again(results: Results) -> dict[Run, Run]:
    """Runs that began where an earlier one of the plan did: that one."""
    firsts: dict[Any, Run] = {}
    again: dict[Run, Run] = {}
    for manifest in results.manifest["runs"]:
        start, run = manifest.get("started_from"), run_of(manifest)
        if start and all(PHASE in frame.columns for frame in results.tables.values()):
            first = firsts.setdefault((start.get("run"), start.get("checkpoint")), run)
            again |= {run: first} if first != run else {}
    return again


def beginnings_once(results: Results) -> Results:
    """Without the first phase of runs where an earlier run began with the same rows."""
    if not (again := [tuple(run) for run in _begun_again(results)]):
        return results
    tables = {
        name: frame[~(pd.MultiIndex.from_frame(frame[RUNS]).isin(again) & (frame[PHASE] == 1))]
        for name, frame in results.tables.items()
    }
    once = Results(tables, results.manifest)
    whole = beginnings_everywhere(once).tables
    same = all(frame.equals(whole[name]) for name, frame in results.tables.items())
    return once if same else results


def beginnings_everywhere(results: Results) -> Results:
    """With the first phase of all runs: the opposite of `beginnings_once`."""
    first_of = {
        run: first
        for run, first in _begun_again(results).items()
        if not (results.rows_of("evaluation", run)[PHASE] == 1).any()
    }
    if not first_of:
        return results

    def rows(name: str, run: Run) -> Iterator[pd.DataFrame]:
        if run in first_of:
            beginning = results.rows_of(name, first_of[run])
            yield beginning[beginning[PHASE] == 1].assign(**run._asdict())
        yield results.rows_of(name, run)

    tables = {
        name: pd.concat(
            [each for run in results.runs for each in rows(name, run)], ignore_index=True
        )
        for name in results.tables
    }
    return Results(tables, results.manifest)


def last_phase(results: Results) -> Results:
    """Results with each run's last phase, with counts from its beginning.

    If a phase continues with the goals of the one before, that one's last evaluation is its first.
    Results without phases are returned as they are; those with phases are kept as `whole`.
    """
    if not results.has_phases:
        return results
    last = results.tables["evaluation"].groupby(RUNS, sort=False)[PHASE].max()
    return Results(_cut(results, last), results.manifest, results)


def each_phase(results: Results) -> Iterator[OnePhase]:
    """Every phase of every variant, in order; none if no run has several."""
    whole = results.whole
    if whole is None:
        return
    for variant in dict.fromkeys(run.variant for run in whole.runs):
        tables = {name: rows_where(table, variant=variant) for name, table in whole.tables.items()}
        runs = [run for run in whole.manifest["runs"] if run["variant"] == variant]
        results = Results(tables, {**whole.manifest, "runs": runs})
        config = runs[0]["config"]
        goals, phases = goals_of_phases(config), _configured_phases(config)
        begins = [0, *(phase["until"] for phase in phases[:-1])]
        for i, begin in enumerate(begins):
            replaces = i > 0 and goals[i] != goals[i - 1]
            named = all(phase.get("sampler") for phase in phases[: i + 1])
            names = pd.MultiIndex.from_frame(tables["evaluation"][RUNS].drop_duplicates())
            rows = Results(_cut(results, pd.Series(i + 1, index=names)), results.manifest)
            yield OnePhase(i + 1, begin, goals[i], replaces, named, rows)


def goals_of_phases(config: Mapping[str, Any]) -> list[Goals]:
    """Goals of each phase, from a run's configuration; a run without phases has one."""
    defaults = {"seed": 0, "split": "train", **(config.get("goals") or {})}
    goals = []
    for phase in _configured_phases(config):
        own = {key: value for key, value in (phase.get("goals") or {}).items() if value is not None}
        goals.append(Goals(phase.get("goal_space") or config["goal_space"], **{**defaults, **own}))
    return goals


def practised_split(results: Results) -> str:
    """Split of the goals practised in the last phase; `train` if runs differ."""
    splits = {goals_of_phases(run["config"])[-1].split for run in results.manifest["runs"]}
    return splits.pop() if len(splits) == 1 else "train"


def _configured_phases(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return config.get("phases") or ({},)


def _cut(results: Results, phases: pd.Series) -> dict[str, pd.DataFrame]:
    """All tables with one phase of each run; phases: its number, by run."""
    evaluation = results.tables["evaluation"]
    before = evaluation[evaluation[PHASE] < _by_row(evaluation, phases)]
    begins = before.groupby(RUNS, sort=False)[list(COUNTS)].max()
    begins = begins.reindex(phases.index, fill_value=0)  # counts at the last evaluation before them
    return {
        name: _cut_table(frame, phases, begins, results.unit_column)
        for name, frame in results.tables.items()
    }


def _cut_table(
    frame: pd.DataFrame, phases: pd.Series, begins: pd.DataFrame, unit: str
) -> pd.DataFrame:
    """The rows of these phases, with evaluations at their beginning added if absent.

    These are the last evaluations of the phase before.
    """
    phase = _by_row(frame, phases)
    rows = frame[frame[PHASE] == phase]
    if "split" in frame.columns:
        evaluated = rows[rows[unit] == _by_row(rows, begins[unit])][RUNS].drop_duplicates()
        last = frame[(frame[PHASE] == phase - 1) & (frame[unit] == _by_row(frame, begins[unit]))]
        again = pd.MultiIndex.from_frame(last[RUNS]).isin(pd.MultiIndex.from_frame(evaluated))
        rows = pd.concat([last[~again], rows])
    rows = rows.drop(columns=PHASE).sort_index(kind="stable").reset_index(drop=True)
    for column in COUNTS:
        if column in rows.columns:
            rows[column] -= _by_row(rows, begins[column])
    return rows


def _by_row(frame: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Values by run, repeated for each row of the run."""
    by_row = values.reindex(pd.MultiIndex.from_frame(frame[RUNS])).to_numpy()
    return pd.Series(by_row, index=frame.index)
