"""Check that the runs in combined tables can be compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.tables import grid, identity
from analysis.tables.grid import RUN_COLUMNS, Run, run_name, run_of
from analysis.tables.manifests import MANIFEST
from analysis.tables.phases import last_phase
from analysis.tables.results import SPLITS, TABLES, Results, distinct, rows_where
from magellan.config import UNIT_COLUMNS, flat_keys
from magellan.config.identity import NAMED
from magellan.core.columns import PHASE
from magellan.core.errors import InputError
from magellan.model.chat import WORLD

Rows = tuple[str, ...]
POINTS: Rows = ("episode", "split", "category", "n")
"""Keys of an evaluation point; the column of the experiment's unit replaces `episode`."""


def diagnose(results: Results) -> None:
    """Check that the runs are those of the experiment and can be compared.

    Raises:
        InputError: one line naming the run, if a planned run is absent and not listed as missing,
            a run is undeclared or not the one that the experiment asks for, evaluation points,
            categories, estimators or numbers of evaluated goals differ, a run goes backwards, or
            two runs differ in more than the experiment says.
    """
    _check_plan(results.manifest)
    _check_listed(results)
    _check_runs(results)
    _check_lengths(results)
    _check_impossible(results)
    for name, spec in TABLES.items():
        _check_table(results, name, spec.keys)
    results = last_phase(results)
    points = grid.in_unit(POINTS, results.unit)
    for goal_space in results.goal_spaces:
        runs = [run for run in results.runs if run.goal_space == goal_space]
        _check_same_rows(results, "evaluation", runs, points)
        if results.unit == "episodes":
            _check_same_rows(results, "practice", runs, ("episode", "category"))
        _check_evaluated_categories(results, goal_space)
        for algorithm in results.algorithms_in(goal_space):
            same = [run for run in runs if run.algorithm == algorithm]
            _check_estimators(results, same, points)


# --- plan and runs ----------------------------------------------------------------------------


def _check_plan(manifest: Mapping[str, Any]) -> None:
    """Check that the plan has every sampler, goal space and seed of the experiment once."""
    experiment, plan = manifest["experiment"], grid.declared_runs(manifest)
    samplers, *others = (experiment[key] for key in ("samplers", "goal_spaces", "seeds"))
    allowed = samplers, grid.variant_names(experiment), *others
    for run in plan:
        if any(value not in values for value, values in zip(run, allowed, strict=True)):
            raise InputError(f"{MANIFEST}: plan: undeclared run for {run_name(run)}")
        if plan.count(run) > 1:
            raise InputError(f"{MANIFEST}: plan: two runs for {run_name(run)}")
    planned = {(run.sampler, run.goal_space, run.seed) for run in plan}
    for sampler, *where in itertools.product(samplers, *others):
        if (sampler, *where) not in planned:
            name = run_name(Run(sampler, allowed[1][0], *where))
            raise InputError(f"{MANIFEST}: plan: no run for {name}")


def _check_listed(results: Results) -> None:
    """Check that every planned run is in the manifest and the tables, or listed as missing."""
    plan, runs = grid.declared_runs(results.manifest), results.runs
    missing = [run_of(entry) for entry in results.manifest["missing"]]
    for run in missing:
        if run not in plan or run in runs or missing.count(run) > 1:
            raise InputError(f"{MANIFEST}: {run_name(run)} cannot be listed as missing")
    declared = [run for run in plan if run not in missing]
    absent = [run for run in declared if run not in runs]
    if absent:
        raise InputError(
            f"{MANIFEST}: no run for {len(absent)} of {len(plan)} that the experiment declares: "
            f"{grid.run_names(absent)}"
        )
    for run in runs:
        if runs.count(run) > 1:
            raise InputError(f"{MANIFEST}: two runs for {run_name(run)}")
    runs_by_file = {MANIFEST: set(runs)} | {
        f"{name}.csv": {Run(*row) for row in distinct(frame, RUN_COLUMNS)}
        for name, frame in results.tables.items()
    }
    for file, present in runs_by_file.items():
        for run in sorted(present - set(declared)):
            raise InputError(f"{file}: undeclared run for {run_name(run)}")
    for file, run in itertools.product(("evaluation.csv", "practice.csv"), declared):
        if run not in runs_by_file[file]:
            raise InputError(f"{file}: no rows for {run_name(run)}, which the manifest lists")


def _check_runs(results: Results) -> None:
    """Check each run against the plan and the experiment, and the reference."""
    plan = {run_of(entry): entry["identity"] for entry in results.manifest["plan"]}
    for manifest in results.manifest["runs"]:
        run = run_of(manifest)
        identity.check_consistent(manifest, MANIFEST)
        if manifest["identity"] != plan[run]:
            raise InputError(
                f"{MANIFEST}: identity is {manifest['identity']!r} in the run and {plan[run]!r} in "
                f"the plan, for {run_name(run)}"
            )
        identity.check_matches_experiment(manifest, run, results.experiment, MANIFEST)
    _check_same_configuration(results)
    identity.check_backbones(results.manifest["runs"])
    if results.reference not in results.algorithms:
        reference = results.experiment["analysis"]["reference"]
        raise grid.unknown_reference(reference, results.algorithms)


def _check_same_configuration(results: Results) -> None:
    """Check that runs differ only in sampler, goal space, seed and the values of variants.

    Only keys that matter for a run are compared: newer schemas have keys that older ones lack.
    """
    varying = set().union(
        *(flat_keys(layer) for layer in results.experiment.get("variants", {}).values())
    )
    values: dict[tuple[str, str], Any] = {}
    for manifest in results.manifest["runs"]:
        run = run_of(manifest)
        for key, value in sorted(flat_keys(manifest["config"]).items()):
            if not identity.matters(key, manifest) or key in NAMED:
                continue
            expected = values.setdefault((key, run.variant if key in varying else ""), value)
            if not identity.same(value, expected):
                raise InputError(
                    f"{MANIFEST}: {key} is {value!r} for {run_name(run)}, {expected!r} elsewhere"
                )


def _check_impossible(results: Results) -> None:
    """Check that no run succeeds at impossible goals, unless its evaluator rewards failures."""
    practice = results.tables["practice"]
    impossible = ~practice["category"].isin(results.categories.feasible)
    won = distinct(practice[impossible & (practice["successes"] > 0)], RUN_COLUMNS)
    for manifest in results.manifest["runs"]:
        rewards = manifest["config"].get("rewards", {})
        errs = rewards.get("false_positive") or rewards.get("model", WORLD) != WORLD
        if run_of(manifest) in won and not errs:
            raise InputError(
                f"practice.csv: successes at an impossible goal for {run_name(run_of(manifest))}; "
                "allowed: none"
            )


def _check_lengths(results: Results) -> None:
    """Check that all runs have one unit, all their phases, updates and practised episodes.

    With a budget in episodes, `diagnose` checks that all runs have the same windows of practice.
    """
    for name, frame in results.tables.items():
        if (PHASE in frame.columns) != results.has_phases:
            raise InputError(f"{name}.csv: column {PHASE} is not in all tables; allowed: all, none")
    by_run = {name: frame.groupby(list(RUN_COLUMNS)) for name, frame in results.tables.items()}
    rows, practised = by_run["training"].size(), by_run["practice"]["n"].sum()
    phases = by_run["evaluation"][PHASE].max() if results.has_phases else {}
    for manifest in results.manifest["runs"]:
        run, unit = run_of(manifest), grid.unit_of(manifest["config"])
        if unit != results.unit:
            raise InputError(
                f"{MANIFEST}: budget ends runs by {unit} for {run_name(run)}, by {results.unit} "
                f"for {run_name(results.runs[0])}; allowed: one unit for all runs of an experiment"
            )
        declared, count = len(manifest["config"].get("phases") or ()) or 1, phases.get(run, 1)
        if count != declared:
            raise InputError(
                f"evaluation.csv: {count} phases for {run_name(run)}; allowed: {declared}, those "
                "of the run"
            )
        every = flat_keys(manifest["config"]).get("budget.record_every")
        updates, episodes = manifest.get("updates"), manifest.get("episodes")
        recorded = updates is not None and isinstance(every, int) and every > 0
        if recorded and rows.get(run, 0) != updates // every:
            raise InputError(
                f"training.csv: {rows.get(run, 0)} rows for {run_name(run)}; allowed: "
                f"{updates // every:g}, one for each {every} of its {updates:g} updates"
            )
        if unit != "episodes" and episodes not in (None, practised[run]):
            raise InputError(
                f"practice.csv: {practised[run]} episodes for {run_name(run)}; allowed: "
                f"{episodes:g}, those of the run"
            )


# --- rows -------------------------------------------------------------------------------------


def _check_table(results: Results, name: str, keys: Rows) -> None:
    """Check that keys of rows are unique, and that a run's counts never decrease.

    Counts are updates, steps and episodes, of a run, phase and estimator.
    """
    frame, phase = results.tables[name], (PHASE,) if results.has_phases else ()
    keys = (*(keys if name == "practice" else grid.in_unit(keys, results.unit)), *phase)
    duplicates = frame[frame.duplicated([*RUN_COLUMNS, *keys])]
    for _, row in duplicates.head(1).iterrows():
        position = _position(keys, row[list(keys)])
        raise InputError(f"{name}.csv: two rows at {position} for {run_name(run_of(row))}")
    order = frame.columns.intersection([*RUN_COLUMNS, PHASE, "estimator"], sort=False)
    runs = frame.groupby(list(order), sort=False)
    for column in frame.columns.intersection(UNIT_COLUMNS.values()):
        for _, row in frame[runs[column].diff() < 0].head(1).iterrows():
            raise InputError(
                f"{name}.csv: {column} falls to {row[column]} for {run_name(run_of(row))}; "
                "allowed: rows in the order of training"
            )


def _check_same_rows(results: Results, name: str, runs: list[Run], columns: Rows) -> None:
    """Check that all of these runs have the same values in `columns`."""
    first, *rest = runs
    expected = distinct(results.rows_of(name, first), columns)
    for run in rest:
        rows = distinct(results.rows_of(name, run), columns)
        if rows != expected:
            row = min(rows ^ expected)
            has, lacks = (run, first) if row in rows else (first, run)
            raise InputError(
                f"{name}.csv: {_position(columns, row)} exists for {run_name(has)} but not for "
                f"{run_name(lacks)}"
            )


def _position(columns: Rows, row: Iterable[Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in zip(columns, row, strict=True))


def _check_estimators(results: Results, runs: list[Run], points: Rows) -> None:
    """Check that an algorithm's runs have the same estimators, which predict all played goals."""
    names = {run_of(one): sorted(one["estimation_episodes"]) for one in results.manifest["runs"]}
    first = runs[0]
    for run in runs:
        if names[run] != names[first]:
            raise InputError(
                f"{MANIFEST}: estimators are {names[run]} for {run_name(run)}, {names[first]} for "
                f"{run_name(first)}; allowed: the same for all runs of an algorithm"
            )
        estimators = sorted(results.rows_of("competence", run)["estimator"].unique())
        if estimators != names[run]:
            raise InputError(
                f"competence.csv: estimators are {estimators} for {run_name(run)}; allowed: "
                f"{names[run]}, as the manifest lists them"
            )
    _check_same_rows(results, "competence", runs, ("estimator", *points))
    played = distinct(results.rows_of("evaluation", first), points)
    frame = results.rows_of("competence", first)
    frame = frame[frame["category"].isin(results.categories.feasible)]
    for estimator in names[first]:
        predicted = distinct(rows_where(frame, estimator=estimator), points)
        for point in sorted(predicted ^ played):
            state = "predicted but not played" if point in predicted else "played but not predicted"
            position = _position(points, point)
            raise InputError(f"competence.csv: {position} is {state} for {run_name(first)}")


def _check_evaluated_categories(results: Results, goal_space: str) -> None:
    """Check that all evaluation points of a split have the same categories."""
    frame = results.table("evaluation", goal_space=goal_space)
    for category in sorted(set(frame["category"]) - set(results.categories.feasible)):
        raise InputError(f"evaluation.csv: goal space {goal_space!r} has category {category!r}")
    for split in SPLITS:
        rows = frame[frame["split"] == split]
        if rows.empty:
            raise InputError(f"evaluation.csv: goal space {goal_space!r} has no split {split!r}")
        categories = rows.groupby(results.unit_column)["category"].agg(frozenset)
        for point, evaluated in categories[categories != categories.iloc[0]].head(1).items():
            lacking = min(evaluated ^ categories.iloc[0])
            raise InputError(
                f"evaluation.csv: category {lacking!r} is not evaluated at every point of goal "
                f"space {goal_space!r}, split {split!r} (see {results.unit_column} {point})"
            )
