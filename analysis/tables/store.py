"""Combine run folders into one set of tidy tables; write, load and unpack them.

A run leaves four CSV tables and a manifest. `combine` stacks the runs of an experiment and refuses
what cannot be compared (a missing seed, another evaluation point, an undeclared run) before any
statistic is computed. Runs may be missing only if the manifest lists them as missing.
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
from analysis.tables.grid import RUN_COLUMNS, Run, categories_of, run_name, run_names, run_of
from analysis.tables.manifests import (
    MANIFEST,
    in_lines,
    read_combined_manifest,
    read_run_manifest,
)
from analysis.tables.phases import beginnings_everywhere, beginnings_once, last_phase
from analysis.tables.reading import read_table
from analysis.tables.results import TABLES, Results
from magellan.config import PlannedRun, counted, grid, load_experiment, resolve_run
from magellan.config.grid import run_path, variants_of
from magellan.config.identity import NAMED
from magellan.config.schema import ExperimentConfig
from magellan.core.columns import PHASE
from magellan.core.errors import InputError
from magellan.core.files import write_atomically

SHARED = "shared"
"""Key of a manifest: folders beside it that hold the rest of its runs."""


class FinishedRun(NamedTuple):
    """A finished run: its name in the grid, folder and manifest."""

    run: Run
    folder: Path
    manifest: dict[str, Any]


def combine(
    run_folders: Iterable[Path], experiment: Mapping[str, Any], incomplete: Path | None = None
) -> Results:
    """Stack the tables of finished runs, in the order of the grid.

    incomplete: if given, runs may be missing; the results folder in which to look for the reasons.

    Raises:
        InputError: a file is missing or malformed, a run is not in the grid, runs are missing, or
            `diagnose` finds the runs not comparable.
    """
    declared = load_experiment(experiment)
    plan = grid(declared)
    resolved = resolved_experiment(declared)
    finished = _match_runs(run_folders, plan, resolved)
    absent = [planned for planned in plan if planned.identity not in finished]
    if absent and incomplete is None:
        names = run_names([run_of(planned.declared()) for planned in absent])
        raise InputError(
            f"combine: no run for {len(absent)} of {len(plan)} that the experiment declares: "
            f"{names}"
        )
    identity.check_modules(run.manifest for run in finished.values())
    runs = [finished[planned.identity] for planned in plan if planned.identity in finished]
    results = Results(
        {name: _stack(name, runs) for name in TABLES},
        {
            "experiment": resolved,
            "plan": [planned.declared() for planned in plan],
            "runs": [{**run.manifest, "variant": run.run.variant} for run in runs],
            "missing": missing_runs(incomplete, absent) if incomplete else [],
            "notes": identity.notes([run.manifest for run in runs]),
        },
    )
    diagnose(results)
    return results


def resolved_experiment(experiment: ExperimentConfig) -> dict[str, Any]:
    """The experiment as kept in combined tables, without where and how it is run.

    Its overrides are complete and typed: YAML's text `1e-4` becomes a number.
    """

    def last_of(*layers: Mapping[str, Any]) -> dict[str, Any]:
        """The last layer, as a run with all of them has it."""
        config = resolve_run(experiment.preset, [experiment.common, *layers])
        flat = config.model_dump(mode="json")
        return {
            key: {one: flat[key][one] for one in value} if isinstance(value, Mapping) else flat[key]
            for key, value in layers[-1].items()
        }

    values = experiment.model_dump(mode="json", exclude={"results", "allow_incomplete"})
    values["overrides"] = last_of(experiment.overrides)
    if experiment.variants:
        layers = variants_of(experiment).items()
        values["variants"] = {name: last_of(experiment.overrides, each) for name, each in layers}
    return values


def _match_runs(
    folders: Iterable[Path], plan: Sequence[PlannedRun], experiment: Mapping[str, Any]
) -> dict[str, FinishedRun]:
    """Finished runs of the grid, by identity.

    Raises:
        InputError: a folder holds a run that is not in the grid, or a run is there twice.
    """
    planned = {run.identity: run for run in plan}
    finished: dict[str, FinishedRun] = {}
    for folder in folders:
        manifest = read_run_manifest(folder)
        identity.check_consistent(manifest, str(folder))
        key = manifest["identity"]
        if key not in planned:
            raise _unplanned(folder, manifest, plan)
        run = FinishedRun(run_of(planned[key].declared()), folder, manifest)
        identity.check_matches_experiment(manifest, run.run, experiment, str(folder))
        if key in finished:
            raise InputError(
                f"{folder}: two runs for {run_name(run.run)}; the other is {finished[key].folder}"
            )
        finished[key] = run
    return finished


def _unplanned(folder: Path, manifest: Mapping[str, Any], plan: Sequence[PlannedRun]) -> InputError:
    """The error for an unplanned run: a key in which it differs from the nearest planned one."""
    name = tuple(manifest[key] for key in NAMED)
    candidates = [run for run in plan if (run.sampler, run.goal_space, run.seed) == name]
    if not candidates:
        text = f"sampler {name[0]!r}, goal space {name[1]!r}, seed {name[2]}"
        return InputError(f"{folder}: undeclared run for {text}: the experiment has no such run")

    def distance(run: PlannedRun) -> int:
        planned, actual = counted(run.config).items(), manifest["counted"].items()
        missing = sum(item not in actual for item in planned)
        return missing + sum(item not in planned for item in actual)

    nearest = min(candidates, key=distance)
    differs = identity.difference(manifest, nearest.config)
    return InputError(f"{folder}: {differs}, for {run_name(run_of(nearest.declared()))}")


def _stack(name: str, runs: Iterable[FinishedRun]) -> pd.DataFrame:
    """One table of all runs, in order, with unchanged rows."""
    frames = []
    for run in runs:
        frame = read_table(run.folder, name, categories_of(run.manifest))
        columns = [*RUN_COLUMNS, *frame.columns]
        frames.append(frame.assign(**run.run._asdict())[columns])
    if any(PHASE in frame.columns for frame in frames):
        for frame in frames:
            if PHASE not in frame.columns:
                frame.insert(len(RUN_COLUMNS), PHASE, 1)
    nonempty = [frame for frame in frames if len(frame)]
    return pd.concat(nonempty, ignore_index=True) if nonempty else frames[0]


def write(results: Results, folder: Path) -> None:
    """Write tables atomically, the manifest last: a folder with one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    if "runs" in results.manifest:
        results = beginnings_once(results)
    for name, frame in results.tables.items():
        text = frame.to_csv(index=False, lineterminator="\n")
        write_atomically(folder / f"{name}.csv", text.encode())
    manifest = results.manifest
    text = in_lines(manifest) if "runs" in manifest else f"{json.dumps(manifest, indent=1)}\n"
    write_atomically(folder / MANIFEST, text.encode())


def load(folder: Path) -> Results:
    """Read combined tables, check them with `diagnose` and return their `last_phase`."""
    return last_phase(load_whole(folder))


def load_whole(folder: Path, from_folders: tuple[Path, ...] = ()) -> Results:
    """As `load`, with the rows of all phases.

    from_folders: that name this one as having some of their runs.
    """
    if folder.resolve() in from_folders:
        raise InputError(f"{SHARED}: {folder} names itself, by others; allowed: other folders")
    if not folder.is_dir():
        raise InputError(f"tables: there is no folder {folder}")
    if not (folder / MANIFEST).exists() and (folder / "tables" / MANIFEST).is_file():
        raise InputError(f"tables: {folder} has no combined tables; allowed: {folder / 'tables'}")
    manifest = read_combined_manifest(folder)
    categories = categories_of(manifest["runs"][0])
    tables = {name: read_table(folder, name, categories, combined=True) for name in TABLES}
    results = beginnings_everywhere(Results(tables, manifest))
    path = (*from_folders, folder.resolve())
    names = manifest.pop(SHARED, ())
    if others := [load_whole(path[-1].parent / name, path) for name in names]:
        results = _joined(manifest, [results, *others])
    diagnose(results)
    return results


# --- runs that several studies have ---


def share(folder: Path, others: Sequence[Path]) -> int:
    """Rewrite combined tables without the runs that folders beside them have as well.

    The manifest then names these folders, and loading joins the runs again: nothing that is
    computed from the tables changes. Without `others` all runs are written.

    Returns:
        how many runs are left to the other folders.

    Raises:
        InputError: the tables are damaged; a folder is not beside them, or has runs of theirs only
            by this one; or a run differs there.
    """
    here = folder.resolve()
    for other in others:
        if other.resolve().parent != here.parent or other.resolve() == here:
            raise InputError(f"others: {other} is not allowed; allowed: folders beside {folder}")
    whole, theirs = load_whole(folder), [load_whole(other, (here,)) for other in others]
    elsewhere = {run["identity"] for other in theirs for run in other.manifest["runs"]}
    runs = [run for run in whole.manifest["runs"] if run["identity"] not in elsewhere]
    if not runs:
        raise InputError(f"others: they hold all runs of {folder}; allowed: not all")
    own = _joined(whole.manifest, [Results(whole.tables, {"runs": runs})])
    again = _joined(whole.manifest, [own, *theirs])
    if again.manifest != whole.manifest or not all(
        frame.equals(whole.tables[name]) for name, frame in again.tables.items()
    ):
        raise InputError(f"others: a run of {folder} is not the same there; allowed: equal runs")
    names = {SHARED: [other.resolve().name for other in others]} if others else {}
    write(Results(own.tables, {**own.manifest, **names}), folder)
    return len(whole.manifest["runs"]) - len(runs)


def _joined(manifest: Mapping[str, Any], sources: Sequence[Results]) -> Results:
    """The planned runs that the sources have, under the plan's names and in its order."""
    found: dict[str, tuple[Mapping[str, Any], dict[str, pd.DataFrame]]] = {}
    for source in sources:
        for run in source.manifest["runs"]:
            rows = {name: source.rows_of(name, run_of(run)) for name in source.tables}
            found.setdefault(run["identity"], (run, rows))
    plan = [entry for entry in manifest["plan"] if entry["identity"] in found]
    parts = [(entry["variant"], *found[entry["identity"]]) for entry in plan]
    tables = {
        name: pd.concat(
            [rows[name].assign(variant=variant) for variant, _, rows in parts], ignore_index=True
        )
        for name in TABLES
    }
    runs = [{**run, "variant": variant} for variant, run, _ in parts]
    return Results(tables, {**manifest, "runs": runs})


# --- run folders from combined tables, to extend a committed experiment ---


def unpack(source: Path, target: Path) -> tuple[int, int]:
    """Write the runs of combined tables where the workflow looks for finished runs.

    Existing runs are left as they are. `combine` of the written runs gives the same tables.

    Returns:
        how many runs were written below the target's `runs`, and how many existed.
    """
    results = load_whole(source)
    written = 0
    for manifest in results.manifest["runs"]:
        names = (manifest[key] for key in ("sampler", "goal_space", "seed", "identity"))
        folder = target / run_path(*names)
        if (folder / MANIFEST).exists():
            continue
        tables = {
            name: results.rows_of(name, run_of(manifest)).drop(columns=list(RUN_COLUMNS))
            for name in results.tables
        }
        own = {key: value for key, value in manifest.items() if key != "variant"}
        write(Results(tables, own), folder)
        written += 1
    return written, len(results.manifest["runs"]) - written
