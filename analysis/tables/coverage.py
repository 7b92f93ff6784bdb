"""Which runs of a declared grid are there, and why the others are missing.

In a results folder a run lies in runs/SAMPLER/GOAL_SPACE/seedN/IDENTITY; what Snakemake's job
printed is in logs/train/, below the same folders, in IDENTITY.log.
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
from analysis.tables.identity import SHORT, changes, difference
from analysis.tables.manifests import MANIFEST, read_run_manifest
from analysis.tables.printing import Table, page
from magellan.config import PlannedRun, counted, flat_keys, hash_of, own_code_of
from magellan.config.modules import in_use
from magellan.core.errors import InputError, printable
from magellan.jobs.attempts import KILLED, Attempts
from magellan.jobs.log import NAME as RUN_LOG

NOT_STARTED = "not started"
NO_END = "no end is noted: killed, or still at work"
FILES_GONE = "was complete, its files are gone"
LONGEST_REASON = 300


def is_complete(folder: Path, files: Iterable[str], identity: str) -> bool:
    """Whether a folder holds these files and the manifest of the run with this identity."""
    try:
        manifest = read_run_manifest(folder)
    except InputError:
        return False
    is_it = manifest["identity"] == identity == hash_of(manifest["counted"])
    return is_it and all((folder / name).is_file() for name in files)


def job_log(results: Path, planned: PlannedRun) -> Path:
    """File with what Snakemake's job of a run printed."""
    return results / "logs" / "train" / f"{planned.path.removeprefix('runs/')}.log"


def missing_runs(
    results: Path, absent: Iterable[PlannedRun], plan: Iterable[PlannedRun]
) -> list[dict[str, Any]]:
    """Missing runs as the manifest of combined tables lists them.

    Args:
        results: folder with `runs` and `logs`.
        absent: those that are missing.
        plan: all runs of the grid.

    Returns:
        For each: sampler, variant, goal_space, seed, the reason in one line, and `log`: the file
        that says more, relative to the results folder, or None.
    """
    asked = {planned.identity for planned in plan}
    return [_missing_run(results, planned, asked) for planned in absent]


def _missing_run(results: Path, planned: PlannedRun, asked: set[str]) -> dict[str, Any]:
    folder, printed = results / planned.path, job_log(results, planned)
    log = next((path for path in (folder / RUN_LOG, printed) if path.is_file()), None)
    reason = _reason(folder, printed, planned) + _strangers(folder, planned, asked)
    return {
        **{column: getattr(planned, column) for column in RUN_COLUMNS},
        "reason": printable(reason[:LONGEST_REASON]),
        "log": log.relative_to(results).as_posix() if log else None,
    }


def _reason(folder: Path, printed: Path, planned: PlannedRun) -> str:
    """Why a run is missing: its manifest, its last attempt, or the last words of its job."""
    if (folder / MANIFEST).exists():
        try:
            manifest = read_run_manifest(folder)
        except InputError as error:
            return str(error).replace(f"{folder}/", "")
        return _other(manifest, planned) or FILES_GONE
    attempts = Attempts(folder, "").read()
    if attempts:
        reason = " ".join(str(attempts[-1]["reason"]).split())
        return {KILLED: NO_END, "complete": FILES_GONE}.get(reason, reason)
    try:
        lines = printed.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return NOT_STARTED
    return next((line.strip() for line in reversed(lines) if line.strip()), NOT_STARTED)


def _other(manifest: Mapping[str, Any], planned: PlannedRun) -> str:
    """In which key a finished run is not the planned one; empty if it is."""
    config = flat_keys(planned.config.model_dump(mode="json"))
    found = difference(manifest, counted(planned.config), config)
    if not found and manifest["identity"] != planned.identity:
        found = f"its identity is {manifest['identity']}, not that of its values"
    return f"complete, but not the run that is asked for: {found}" if found else ""


def _strangers(folder: Path, planned: PlannedRun, asked: set[str]) -> str:
    """Finished runs beside a missing one that no run of the grid asks for."""
    found = []
    for path in sorted(folder.parent.glob(f"*/{MANIFEST}")):
        try:
            manifest = read_run_manifest(path.parent)
        except InputError:
            continue
        if manifest["identity"] not in asked and _other(manifest, planned):
            found.append((path.parent.name, manifest))
    if not found:
        return ""
    (name, manifest), more = found[0], len(found) - 1
    config = flat_keys(planned.config.model_dump(mode="json"))
    differs = difference(manifest, counted(planned.config), config)
    others = f", and {more} more" if more else ""
    return f"; beside it lies another finished run, {name}: {differs}{others}"


def made_by_other_code(results: Path, plan: Iterable[PlannedRun]) -> str:
    """Finished runs that used another version of a user's file than is loaded; empty if none did.

    Args:
        results: folder with `runs`.
        plan: runs of the grid.
    """
    found = {run_of(planned.declared()): _other_code(results, planned) for planned in plan}
    others = {run: words for run, words in found.items() if words}
    if not others:
        return ""
    return (
        f"modules: {len(others)} of {len(found)} runs are complete and were made with another "
        f"version of {next(iter(others.values()))}: {run_names(list(others))}; runs of both "
        "versions are refused together: put that version back, remove the folders of these runs, "
        "or let the new version register another name"
    )


def _other_code(results: Path, planned: PlannedRun) -> str:
    try:
        there = in_use(read_run_manifest(results / planned.path))
    except InputError:
        return ""
    here = in_use(own_code_of(planned.config))
    for name in sorted(here.keys() & there.keys()):
        (path, now), (_, then) = here[name], there[name]
        if now != then:
            return f"{path!r} ({name} had SHA-256 {then[:SHORT]}, now {now[:SHORT]})"
    return ""


def describe_missing(missing: Iterable[Mapping[str, Any]], results: Path) -> str:
    """One line per missing run: which, why, and where its log is."""
    lines = []
    for entry in missing:
        log = f" ({results / entry['log']})" if entry["log"] else ""
        lines.append(f"  {run_name(run_of(entry))}: {printable(entry['reason'])}{log}")
    return "\n".join(lines)


# --- table and page --------------------------------------------------------------------------


def has_variants(manifest: Mapping[str, Any]) -> bool:
    """Whether the experiment names variants."""
    return bool(manifest["experiment"].get("variants"))


def table(manifest: Mapping[str, Any]) -> Table:
    """Algorithms x goal spaces: complete of declared seeds, and the missing ones."""
    plan, spaces = declared_runs(manifest), manifest["experiment"]["goal_spaces"]
    declared, there = map(seeds_by_algorithm, (plan, map(run_of, manifest["runs"])))
    rows = []
    for algorithm in dict.fromkeys(run.algorithm for run in plan):
        cells = [
            _cell(
                declared.get(space, {}).get(algorithm, []), there.get(space, {}).get(algorithm, [])
            )
            for space in spaces
        ]
        rows.append((*_named(algorithm, manifest), *cells))
    columns = (*_named(Algorithm("Sampler", "Variant"), manifest), *spaces)
    return Table(sentence(manifest), columns, tuple(rows))


def _named(algorithm: Algorithm, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Sampler, and variant where the experiment has variants."""
    return tuple(algorithm) if has_variants(manifest) else (algorithm.sampler,)


def _cell(declared: Sequence[int], there: Sequence[int]) -> str:
    if not declared:
        return "same as an earlier variant"
    absent = [str(seed) for seed in declared if seed not in there]
    cell = f"{len(there)} of {len(declared)}"
    return f"{cell} (missing: {', '.join(absent)})" if absent else cell


def missing_table(manifest: Mapping[str, Any]) -> Table:
    """One row per missing run, with the reason and the place of its log."""
    columns = ("Goal space", "Seed", "Reason", "Log")
    rows = tuple(
        (
            *_named(run_of(entry).algorithm, manifest),
            entry["goal_space"],
            str(entry["seed"]),
            printable(entry["reason"]),
            entry["log"] or "none",
        )
        for entry in manifest["missing"]
    )
    named = _named(Algorithm("Sampler", "Variant"), manifest)
    return Table("Missing runs", (*named, *columns), rows)


def changed_table(manifest: Mapping[str, Any]) -> Table:
    """One row per run that was not made alike from its beginning to its end."""
    rows = tuple(
        (
            *_named(run_of(run).algorithm, manifest),
            run["goal_space"],
            str(run["seed"]),
            printable("; ".join(changes(run))),
        )
        for run in manifest["runs"]
        if changes(run)
    )
    named = _named(Algorithm("Sampler", "Variant"), manifest)
    columns = (*named, "Goal space", "Seed", "From its beginning to its end")
    return Table("Runs that changed on the way", columns, rows)


def sentence(manifest: Mapping[str, Any]) -> str:
    """How much of the declared grid is there, in one line."""
    declared, there = len(declared_runs(manifest)), len(manifest["runs"])
    if there == declared:
        return f"All {declared} declared runs are complete"
    return f"Incomplete grid: {there} of {declared} declared runs are complete"


def notes_text(manifest: Mapping[str, Any]) -> str:
    """What differs between the runs beside their configuration; empty if nothing does."""
    notes = manifest.get("notes", ())
    return f"Not all runs were made alike. {'. '.join(map(printable, notes))}." if notes else ""


def to_html(manifest: Mapping[str, Any]) -> str:
    """Coverage of the grid, and what each run took, as a page for the report."""
    optional = [missing_table(manifest), changed_table(manifest)]
    shown = [table(manifest), *(each for each in optional if each.rows), run_table(manifest)]
    return page("Coverage of the grid", shown, note=notes_text(manifest))


# --- what each run took, from the manifests of the combined tables --------------------------------

UNKNOWN = "n/a"
RunManifest = Mapping[str, Any]


def minutes(run: RunManifest) -> float | None:
    """Time of training, all attempts together."""
    return _ratio(run.get("wall_seconds"), 60.0)


def steps_per_second(run: RunManifest) -> float | None:
    """Environment steps per second of training."""
    return _ratio(run.get("steps"), run.get("wall_seconds"))


def saving_share(run: RunManifest) -> float | None:
    """Per cent of the time that went into checkpoints, all attempts together."""
    share = _ratio(run.get("saving_seconds"), run.get("wall_seconds"))
    return None if share is None else 100.0 * share


def _ratio(amount: float | None, by: float | None) -> float | None:
    return amount / by if amount is not None and by else None


AMOUNTS: Mapping[str, tuple[Callable[[RunManifest], float | None], int]] = {
    "Minutes": (minutes, 1),
    "Peak memory, MB": (lambda run: run.get("peak_memory_mb"), 0),
    "Updates": (lambda run: run.get("updates"), 0),
    "Steps/s": (steps_per_second, 0),
    "Restarts": (lambda run: run.get("restarts"), 0),
    "Saving, % of time": (saving_share, 2),
}
"""Columns with their digits behind the point."""
WORDS: Mapping[str, Callable[[RunManifest], str]] = {
    "Attempts": lambda run: _number(run.get("attempts"), 0),
    "Earlier stops": lambda run: _earlier_stops(run.get("stop_reasons")),
    "Device": lambda run: _text(run.get("device")),
    "Threads": lambda run: _text(run.get("threads")),
    "Machine": lambda run: _text(run.get("host")),
}


def run_table(manifest: Mapping[str, Any]) -> Table:
    """One row per run: its time, memory and restarts."""
    rows = tuple(
        (
            *_named(run_of(run).algorithm, manifest),
            run["goal_space"],
            str(run["seed"]),
            *(_number(amount(run), digits) for amount, digits in AMOUNTS.values()),
            *(words(run) for words in WORDS.values()),
        )
        for run in manifest["runs"]
    )
    named = _named(Algorithm("Sampler", "Variant"), manifest)
    return Table("Every run", (*named, "Goal space", "Seed", *AMOUNTS, *WORDS), rows)


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _text(value: Any) -> str:
    return UNKNOWN if value is None else printable(str(value))


def _earlier_stops(reasons: list[str] | None) -> str:
    if reasons is None:
        return UNKNOWN
    return printable("; ".join(reasons[:-1])) or "none"
