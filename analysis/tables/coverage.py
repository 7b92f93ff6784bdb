"""Coverage of a declared grid: which runs are complete, and why the others are missing.

In a results folder a run lies in runs/SAMPLER/GOAL_SPACE/seedN/IDENTITY; the output of Snakemake's
job is in logs/train/, below the same folders, in IDENTITY.log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.tables.grid import (
    RUN_COLUMNS,
    Algorithm,
    declared_runs,
    run_name,
    run_names,
    run_of,
    seeds_by_algorithm,
)
from analysis.tables.identity import SHORT, difference
from analysis.tables.identity import changes as changes_of
from analysis.tables.manifests import MANIFEST, read_run_manifest
from analysis.tables.printing import Table, page
from magellan.config import PlannedRun, hash_of, own_code_of
from magellan.config.modules import in_use
from magellan.core.errors import InputError, printable
from magellan.jobs.log import NAME as RUN_LOG
from magellan.jobs.provenance import KILLED, Attempts

NOT_STARTED = "not started"
NO_END = "no end is recorded: killed, or still running"
FILES_GONE = "was complete, but its files are missing"
LONGEST_REASON = 300
HEADER = Algorithm("Sampler", "Variant")
RunManifest = Mapping[str, Any]
RunCells = tuple[RunManifest, Iterable[str]]
"""A run's entry in the manifest, and texts about it."""


def is_complete(folder: Path, files: Iterable[str], identity: str) -> bool:
    """Whether a folder holds these files and the manifest of the run with this identity."""
    try:
        manifest = read_run_manifest(folder)
    except InputError:
        return False
    matches = manifest["identity"] == identity == hash_of(manifest["counted"])
    return matches and all((folder / name).is_file() for name in files)


def job_log(results: Path, planned: PlannedRun) -> Path:
    """File with the output of a run's Snakemake job."""
    return results / "logs" / "train" / f"{planned.path.removeprefix('runs/')}.log"


def missing_runs(
    results: Path, absent: Iterable[PlannedRun], plan: Iterable[PlannedRun]
) -> list[dict[str, Any]]:
    """Missing runs as the manifest of combined tables lists them.

    Args:
        results: folder with `runs` and `logs`.
        absent: the missing runs.
        plan: all runs of the grid.

    Returns:
        For each: sampler, variant, goal_space, seed, the reason in one line, and `log`: the file
        with details, relative to the results folder, or None.
    """
    identities = {planned.identity for planned in plan}
    return [_missing_run(results, planned, identities) for planned in absent]


def _missing_run(results: Path, planned: PlannedRun, identities: set[str]) -> dict[str, Any]:
    folder, output = results / planned.path, job_log(results, planned)
    log = next((path for path in (folder / RUN_LOG, output) if path.is_file()), None)
    reason = _reason(folder, output, planned) + _unplanned_runs(folder, planned, identities)
    return {
        **{column: getattr(planned, column) for column in RUN_COLUMNS},
        "reason": printable(reason[:LONGEST_REASON]),
        "log": log.relative_to(results).as_posix() if log else None,
    }


def _reason(folder: Path, output: Path, planned: PlannedRun) -> str:
    """Why a run is missing: from its manifest, its last attempt, or the last line of its job."""
    if (folder / MANIFEST).exists():
        try:
            manifest = read_run_manifest(folder)
        except InputError as error:
            return str(error).replace(f"{folder}/", "")
        return _mismatch(manifest, planned) or FILES_GONE
    attempts = Attempts(folder, "").read()
    if attempts:
        reason = " ".join(str(attempts[-1]["reason"]).split())
        return {KILLED: NO_END, "complete": FILES_GONE}.get(reason, reason)
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return NOT_STARTED
    return next((line.strip() for line in reversed(lines) if line.strip()), NOT_STARTED)


def _mismatch(manifest: Mapping[str, Any], planned: PlannedRun) -> str:
    """How a finished run differs from the planned one; empty if it does not."""
    differs = difference(manifest, planned.config)
    if not differs and manifest["identity"] != planned.identity:
        differs = f"its identity is {manifest['identity']}, not that of its values"
    return f"complete, but not the planned run: {differs}" if differs else ""


def _unplanned_runs(folder: Path, planned: PlannedRun, identities: set[str]) -> str:
    """Finished runs beside a missing one that are not in the grid."""
    unplanned = []
    for path in sorted(folder.parent.glob(f"*/{MANIFEST}")):
        try:
            manifest = read_run_manifest(path.parent)
        except InputError:
            continue
        if manifest["identity"] not in identities and _mismatch(manifest, planned):
            unplanned.append(f"{path.parent.name}: {difference(manifest, planned.config)}")
    if not unplanned:
        return ""
    more = f", and {len(unplanned) - 1} more" if unplanned[1:] else ""
    return f"; beside it is another finished run, {unplanned[0]}{more}"


def made_by_other_code(results: Path, plan: Iterable[PlannedRun]) -> str:
    """Finished runs that used another version of a user's file than is loaded; may be empty.

    Args:
        results: folder with `runs`.
        plan: runs of the grid.
    """
    changes = {run_of(planned.declared()): _code_change(results, planned) for planned in plan}
    outdated = {run: change for run, change in changes.items() if change}
    if not outdated:
        return ""
    return (
        f"modules: {len(outdated)} of {len(changes)} runs are complete and were made with another "
        f"version of {next(iter(outdated.values()))}: {run_names(list(outdated))}; runs of both "
        "versions are refused together: put that version back, remove the folders of these runs, "
        "or let the new version register another name"
    )


def _code_change(results: Path, planned: PlannedRun) -> str:
    try:
        used = in_use(read_run_manifest(results / planned.path))
    except InputError:
        return ""
    loaded = in_use(own_code_of(planned.config))
    for name in sorted(loaded.keys() & used.keys()):
        (path, now), (_, then) = loaded[name], used[name]
        if now != then:
            return f"{path!r} ({name} had SHA-256 {then[:SHORT]}, now {now[:SHORT]})"
    return ""


def describe_missing(missing: Iterable[Mapping[str, Any]], results: Path) -> str:
    """One line per missing run: its name, the reason, and its log."""
    lines = []
    for entry in missing:
        log = f" ({results / entry['log']})" if entry["log"] else ""
        lines.append(f"  {run_name(run_of(entry))}: {printable(entry['reason'])}{log}")
    return "\n".join(lines)


# --- table and page --------------------------------------------------------------------------


def table(manifest: Mapping[str, Any]) -> Table:
    """Algorithms x goal spaces: how many declared seeds are complete, and the missing ones."""
    plan, spaces = declared_runs(manifest), manifest["experiment"]["goal_spaces"]
    declared, complete = map(seeds_by_algorithm, (plan, map(run_of, manifest["runs"])))
    rows = []
    for algorithm in dict.fromkeys(run.algorithm for run in plan):
        seeds = [
            [by_space.get(space, {}).get(algorithm, []) for by_space in (declared, complete)]
            for space in spaces
        ]
        rows.append((*_names(algorithm, manifest), *(_cell(*pair) for pair in seeds)))
    columns = (*_names(HEADER, manifest), *spaces)
    return Table(sentence(manifest), columns, tuple(rows))


def _names(algorithm: Algorithm, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The sampler, and the variant if the experiment has variants."""
    has_variants = manifest["experiment"].get("variants")
    return tuple(algorithm) if has_variants else (algorithm.sampler,)


def _cell(declared: Sequence[int], complete: Sequence[int]) -> str:
    if not declared:
        return "same as an earlier variant"
    absent = [str(seed) for seed in declared if seed not in complete]
    cell = f"{len(complete)} of {len(declared)}"
    return f"{cell} (missing: {', '.join(absent)})" if absent else cell


def _table_of_runs(
    title: str, columns: Iterable[str], manifest: Mapping[str, Any], cells: Iterable[RunCells]
) -> Table:
    """One row per run: its name, and its cells in these columns."""
    rows = tuple(
        (*_names(run_of(run).algorithm, manifest), run["goal_space"], str(run["seed"]), *texts)
        for run, texts in cells
    )
    return Table(title, (*_names(HEADER, manifest), "Goal space", "Seed", *columns), rows)


def missing_table(manifest: Mapping[str, Any]) -> Table:
    """One row per missing run, with the reason and the path of its log."""
    cells = ((run, (printable(run["reason"]), run["log"] or "none")) for run in manifest["missing"])
    return _table_of_runs("Missing runs", ("Reason", "Log"), manifest, cells)


def changed_table(manifest: Mapping[str, Any]) -> Table:
    """One row per run whose code or environment changed during training."""
    changes = ((run, changes_of(run)) for run in manifest["runs"])
    cells = ((run, (printable("; ".join(texts)),)) for run, texts in changes if texts)
    return _table_of_runs("Runs that changed during training", ("Change",), manifest, cells)


def sentence(manifest: Mapping[str, Any]) -> str:
    """How many declared runs are complete, in one line."""
    declared, complete = len(declared_runs(manifest)), len(manifest["runs"])
    if complete == declared:
        return f"All {declared} declared runs are complete"
    return f"Incomplete grid: {complete} of {declared} declared runs are complete"


def notes_text(manifest: Mapping[str, Any]) -> str:
    """Differences between the runs other than their configuration; may be empty."""
    notes = manifest.get("notes", ())
    return f"Not all runs were made alike. {'. '.join(map(printable, notes))}." if notes else ""


def to_html(manifest: Mapping[str, Any]) -> str:
    """Coverage of the grid, and the cost of each run, as a page for the report."""
    optional = [t for t in (missing_table(manifest), changed_table(manifest)) if t.rows]
    tables = [table(manifest), *optional, run_table(manifest)]
    return page("Coverage of the grid", tables, note=notes_text(manifest))


# --- cost of each run, from the manifests of the combined tables ----------------------------------

UNKNOWN = "n/a"


CELLS: Mapping[str, Callable[[RunManifest], str]] = {
    "Minutes": lambda run: _number(run.get("wall_seconds"), 1, by=60.0),
    "Peak memory, MB": lambda run: _number(run.get("peak_memory_mb")),
    "Updates": lambda run: _number(run.get("updates")),
    "Steps/s": lambda run: _number(run.get("steps"), by=run.get("wall_seconds")),
    "Restarts": lambda run: _number(run.get("restarts")),
    "Saving, % of time": lambda run: _number(
        run.get("saving_seconds"), 2, by=run.get("wall_seconds"), times=100.0
    ),
    "Attempts": lambda run: _number(run.get("attempts")),
    "Earlier stops": lambda run: _earlier_stops(run.get("stop_reasons")),
    "Device": lambda run: _text(run.get("device")),
    "Threads": lambda run: _text(run.get("threads")),
    "Machine": lambda run: _text(run.get("host")),
}


def run_table(manifest: Mapping[str, Any]) -> Table:
    """One row per run: its time, memory and restarts."""
    cells = ((run, [cell(run) for cell in CELLS.values()]) for run in manifest["runs"])
    return _table_of_runs("Every run", CELLS, manifest, cells)


def _number(
    value: float | None, digits: int = 0, by: float | None = 1.0, times: float = 1.0
) -> str:
    """A quotient with so many decimals; `n/a` if either number is unknown."""
    return f"{times * (value / by):,.{digits}f}" if value is not None and by else UNKNOWN


def _text(value: Any) -> str:
    return UNKNOWN if value is None else printable(str(value))


def _earlier_stops(reasons: list[str] | None) -> str:
    if reasons is None:
        return UNKNOWN
    return printable("; ".join(reasons[:-1])) or "none"
