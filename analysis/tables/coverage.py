"""Coverage of a declared grid: which runs are complete, and why the others are missing.

In a results folder a run lies in runs/SAMPLER/GOAL_SPACE/seedN/IDENTITY; the output of Snakemake's
job is in logs/train/, below the same folders, in IDENTITY.log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.tables.grid import RUN_COLUMNS, declared_runs, run_name, run_names, run_of
from analysis.tables.identity import SHORT, difference
from analysis.tables.manifests import MANIFEST, read_run_manifest
from magellan.config import PlannedRun, hash_of, own_code_of
from magellan.config.modules import in_use
from magellan.core.errors import InputError, printable
from magellan.jobs.log import NAME as RUN_LOG
from magellan.jobs.provenance import KILLED, Attempts

NOT_STARTED = "not started"
NO_END = "no end is recorded: killed, or still running"
FILES_GONE = "was complete, but its files are missing"
LONGEST_REASON = 300


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


def missing_runs(results: Path, absent: Iterable[PlannedRun]) -> list[dict[str, Any]]:
    """Missing runs of a results folder as the manifest of combined tables lists them.

    Each has sampler, variant, goal_space, seed, the reason in one line, and `log`: the file with
    details, relative to the results folder, or None.
    """
    missing = []
    for planned in absent:
        folder, output = results / planned.path, job_log(results, planned)
        log = next((path for path in (folder / RUN_LOG, output) if path.is_file()), None)
        missing.append(
            {
                **{column: getattr(planned, column) for column in RUN_COLUMNS},
                "reason": printable(_reason(folder, output, planned)[:LONGEST_REASON]),
                "log": log.relative_to(results).as_posix() if log else None,
            }
        )
    return missing


def _reason(folder: Path, output: Path, planned: PlannedRun) -> str:
    """Why a run is missing: from its manifest, its last attempt, or the last line of its job."""
    if (folder / MANIFEST).exists():
        try:
            manifest = read_run_manifest(folder)
        except InputError as error:
            return str(error).replace(f"{folder}/", "")
        differs = difference(manifest, planned.config)
        if not differs and manifest["identity"] != planned.identity:
            differs = f"its identity is {manifest['identity']}, not that of its values"
        return f"complete, but not the planned run: {differs}" if differs else FILES_GONE
    attempts = Attempts(folder, "").read()
    if attempts:
        reason = " ".join(str(attempts[-1]["reason"]).split())
        return {KILLED: NO_END, "complete": FILES_GONE}.get(reason, reason)
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return NOT_STARTED
    return next((line.strip() for line in reversed(lines) if line.strip()), NOT_STARTED)


def made_by_other_code(results: Path, plan: Iterable[PlannedRun]) -> str:
    """Finished runs that used another version of a user's file than is loaded; may be empty."""
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


def sentence(manifest: Mapping[str, Any]) -> str:
    """How many declared runs are complete, in one line."""
    declared, complete = len(declared_runs(manifest)), len(manifest["runs"])
    if complete == declared:
        return f"All {declared} declared runs are complete"
    return f"Incomplete grid: {complete} of {declared} declared runs are complete"
