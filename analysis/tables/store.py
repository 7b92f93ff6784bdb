"""Run folders in, one set of tidy tables out; and back from files.

A run leaves four CSV tables and a manifest. `combine` stacks the runs of an experiment; what cannot
be compared (a missing seed, another evaluation point, another run than the one asked for) is
refused before any statistic is computed. Runs may be missing only if the manifest lists them so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis.tables import identity
from analysis.tables.coverage import missing_runs
from analysis.tables.diagnosis import diagnose
from analysis.tables.grid import RUN_COLUMNS, Run, run_name, run_names, run_of
from analysis.tables.labels import categories_of
from analysis.tables.manifests import MANIFEST, advised, read_combined_manifest, read_run_manifest
from analysis.tables.phases import last_phase
from analysis.tables.reading import read_table
from analysis.tables.results import TABLES, Results
from magellan.config import (
    ExperimentConfig,
    PlannedRun,
    counted,
    flat_keys,
    grid,
    load_experiment,
    resolve_run,
    run_path,
    variants_of,
)
from magellan.core.columns import PHASE
from magellan.core.errors import InputError
from magellan.core.files import write_atomically

# How an experiment is run and where it lies; no part of what its tables are.
NOT_KEPT = {"results", "allow_incomplete"}


class Found(NamedTuple):
    """A finished run: its place in the grid, its folder and its manifest."""

    planned: PlannedRun
    folder: Path
    manifest: dict[str, Any]

    @property
    def run(self) -> Run:
        """Its name."""
        return run_of(self.planned.declared())


def combine(
    run_folders: Iterable[Path], experiment: Mapping[str, Any], incomplete: Path | None = None
) -> Results:
    """Stack the tables of finished runs, in the order of the grid.

    Args:
        run_folders: one per run.
        experiment: configuration of the grid asked for.
        incomplete: if given, runs of the grid may be missing; the results folder (with `runs` and
            `logs`) where the reasons are looked up.

    Raises:
        InputError: a file is missing or malformed, a run is not one that the experiment asks for,
            runs are missing, or `diagnose` finds the runs not comparable.
    """
    folders = list(run_folders)
    if not folders:
        raise InputError("combine: no run folder was given")
    declared = load_experiment(experiment, models=False)
    plan = grid(declared)
    settled = settled_experiment(declared)
    found = _matched(folders, plan, settled)
    absent = [planned for planned in plan if planned.identity not in found]
    if absent and incomplete is None:
        raise InputError(_missing_line(absent, plan))
    identity.check_modules(each.manifest for each in found.values())
    ordered = [found[planned.identity] for planned in plan if planned.identity in found]
    results = Results(
        {name: _stack(name, ordered) for name in TABLES},
        {
            "experiment": settled,
            "plan": [planned.declared() for planned in plan],
            "runs": [{**each.manifest, "variant": each.planned.variant} for each in ordered],
            "missing": missing_runs(incomplete, absent, plan) if incomplete else [],
            "notes": identity.notes([each.manifest for each in ordered]),
        },
    )
    diagnose(results)
    return results


def settled_experiment(experiment: ExperimentConfig) -> dict[str, Any]:
    """An experiment as combined tables keep it: overrides have the values that runs get."""
    values = experiment.model_dump(mode="json", exclude=NOT_KEPT)
    layers = [experiment.overrides]
    values["overrides"] = _settled(experiment, layers)
    if experiment.variants:
        values["variants"] = {
            name: _settled(experiment, [*layers, layer])
            for name, layer in variants_of(experiment).items()
        }
    return values


def _settled(experiment: ExperimentConfig, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last layer, with values typed and complete: `1e-4` as YAML has it is a number."""
    config = resolve_run(experiment.preset, [experiment.common, *layers])
    flat = config.model_dump(mode="json")
    return {
        key: {inner: flat[key][inner] for inner in value}
        if isinstance(value, Mapping)
        else flat[key]
        for key, value in layers[-1].items()
    }


def _matched(
    folders: Iterable[Path], plan: Sequence[PlannedRun], experiment: Mapping[str, Any]
) -> dict[str, Found]:
    """Identity -> the run of the grid that it is.

    Raises:
        InputError: a folder holds a run that the grid does not ask for, or one stands twice.
    """
    asked = {planned.identity: planned for planned in plan}
    found: dict[str, Found] = {}
    for folder in folders:
        manifest = read_run_manifest(folder)
        identity.check_whole(manifest, str(folder))
        name = manifest["identity"]
        if name not in asked:
            raise _not_asked(folder, manifest, plan)
        each = Found(asked[name], folder, manifest)
        identity.check_asked(manifest, each.run, experiment, str(folder))
        if name in found:
            raise InputError(
                f"{folder}: two runs for {run_name(each.run)}; the other is {found[name].folder}"
            )
        found[name] = each
    return found


def _not_asked(folder: Path, manifest: Mapping[str, Any], plan: Sequence[PlannedRun]) -> InputError:
    """The error for a run of another identity: the key in which it differs from the nearest."""
    place = tuple(manifest[key] for key in identity.NAMED)
    near = [run for run in plan if (run.sampler, run.goal_space, run.seed) == place]
    if not near:
        name = f"sampler {place[0]!r}, goal space {place[1]!r}, seed {place[2]}"
        return InputError(f"{folder}: undeclared run for {name}: the experiment has none such")

    def distance(run: PlannedRun) -> int:
        ours, theirs = counted(run.config).items(), manifest["counted"].items()
        return sum(item not in theirs for item in ours) + sum(item not in ours for item in theirs)

    nearest = min(near, key=distance)
    config = flat_keys(nearest.config.model_dump(mode="json"))
    differs = identity.difference(manifest, counted(nearest.config), config)
    return InputError(f"{folder}: {differs}, for {run_name(run_of(nearest.declared()))}")


def _missing_line(absent: Sequence[PlannedRun], plan: Sequence[PlannedRun]) -> str:
    names = run_names([run_of(planned.declared()) for planned in absent])
    return f"combine: no run for {len(absent)} of {len(plan)} that the experiment declares: {names}"


def _stack(name: str, runs: Iterable[Found]) -> pd.DataFrame:
    """One table of all runs, in their order; each run's rows stay as they are."""
    frames = []
    for each in runs:
        frame = read_table(each.folder, name, categories_of(each.manifest))
        for position, column in enumerate(RUN_COLUMNS):
            frame.insert(position, column, getattr(each.run, column))
        frames.append(frame)
    if any(PHASE in frame.columns for frame in frames):
        for frame in frames:
            if PHASE not in frame.columns:
                frame.insert(len(RUN_COLUMNS), PHASE, 1)
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


def write(results: Results, folder: Path) -> None:
    """Write the combined tables and their manifest, each whole; the manifest comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in results.tables.items():
        text = frame.to_csv(index=False, lineterminator="\n")
        write_atomically(folder / f"{name}.csv", text.encode())
    # Keys keep their order: the first variant of an experiment is not the first by the alphabet.
    write_atomically(folder / MANIFEST, f"{json.dumps(results.manifest, indent=1)}\n".encode())


def load(folder: Path) -> Results:
    """Read combined tables and check them with `diagnose`; gives what is compared of them."""
    return last_phase(load_whole(folder))


def load_whole(folder: Path) -> Results:
    """The same, with the rows of all phases."""
    with advised(folder):
        if not folder.is_dir():
            raise InputError(f"tables: there is no folder {folder}")
        manifest = read_combined_manifest(folder)
        known = categories_of(manifest["runs"][0])
        tables = {name: read_table(folder, name, known, combined=True) for name in TABLES}
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
        content = (source / "tables" / name).read_bytes()
        write_atomically(target / "tables" / name, content)


# --- Run folders from combined tables: an experiment goes on where its committed tables end ---


def unpack(source: Path, target: Path) -> tuple[int, int]:
    """Write the runs of combined tables to where the workflow looks for finished runs.

    A run that is there already is left as it is. `combine` of what was written gives the same
    tables again.

    Args:
        source: folder of combined tables.
        target: results folder of the experiment; the runs go below its `runs`.

    Returns:
        how many runs were written, and how many were there.

    Raises:
        InputError: the tables are damaged or hold runs that do not compare.
    """
    results = load_whole(source)
    written = 0
    for manifest in results.manifest["runs"]:
        place = (manifest[key] for key in ("sampler", "goal_space", "seed", "identity"))
        folder = target / run_path(*place)
        if (folder / MANIFEST).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in results.tables.items():
            columns = [column for column in frame.columns if column not in RUN_COLUMNS]
            text = _rows_of(frame, manifest, columns).to_csv(index=False, lineterminator="\n")
            write_atomically(folder / f"{name}.csv", text.encode())
        own = {key: value for key, value in manifest.items() if key != "variant"}
        # The manifest comes last: what has one is complete.
        write_atomically(folder / MANIFEST, f"{json.dumps(own, indent=1)}\n".encode())
        written += 1
    return written, len(results.manifest["runs"]) - written


def _rows_of(
    frame: pd.DataFrame, manifest: Mapping[str, Any], columns: Sequence[str]
) -> pd.DataFrame:
    """The rows of one run, without the columns that say whose they are."""
    mine = pd.Series(True, index=frame.index)
    for column in RUN_COLUMNS:
        mine &= frame[column] == manifest[column]
    return frame.loc[mine, list(columns)]
