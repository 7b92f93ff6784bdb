"""Which runs of a declared grid are there, and why the others are missing.

A run is named by sampler, goal space and seed. In a results folder it lies in
runs/SAMPLER/GOAL_SPACE/seedN; what Snakemake's job printed is in logs/train/SAMPLER/GOAL_SPACE.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import pages
from analysis.manifests import MANIFEST, read_run_manifest
from magellan.errors import InputError
from magellan.training.attempts import KILLED, Attempts
from magellan.training.log import NAME as RUN_LOG

Run = tuple[str, str, int]

NOT_STARTED = "not started"
NO_END = "no end is noted: killed, or still at work"
OTHER_CONFIGURATION = "complete, but not with the configuration of the experiment"
FILES_GONE = "was complete, its files are gone"
LONGEST_REASON = 300
SHOWN_RUNS = 5


def declared_runs(experiment: Mapping[str, Any]) -> list[Run]:
    """Every run of the grid, by sampler, goal space and seed."""
    return list(
        itertools.product(experiment["samplers"], experiment["goal_spaces"], experiment["seeds"])
    )


def run_of(manifest: Mapping[str, Any]) -> Run:
    """The run that a manifest is about."""
    return manifest["sampler"], manifest["goal_space"], manifest["seed"]


def run_name(run: Run) -> str:
    """A run in words, for messages."""
    return f"sampler {run[0]!r}, goal space {run[1]!r}, seed {run[2]}"


def run_names(runs: Sequence[Run]) -> str:
    """The first few runs in words, and how many more there are."""
    names = [run_name(run) for run in runs[:SHOWN_RUNS]]
    more = len(runs) - len(names)
    return "; ".join([*names, f"and {more} more"] if more else names)


def run_folder(results: Path, run: Run) -> Path:
    """Where a run lies in a results folder."""
    return results / "runs" / run[0] / run[1] / f"seed{run[2]}"


def is_complete(folder: Path, files: Iterable[str], config_hash: str) -> bool:
    """Whether a folder holds these files and the manifest of a run with this configuration."""
    try:
        manifest = read_run_manifest(folder)
    except InputError:
        return False
    same = manifest.get("config_hash", config_hash) == config_hash
    return same and all((folder / name).is_file() for name in files)


def missing_run(results: Path, run: Run) -> dict[str, Any]:
    """A missing run as the manifest of combined tables lists it.

    Returns:
        sampler, goal_space, seed, the reason in one line, and `log`: the file that says more,
        relative to the results folder, or None.
    """
    folder = run_folder(results, run)
    job_log = results / "logs" / "train" / run[0] / run[1] / f"seed{run[2]}.log"
    log = next((path for path in (folder / RUN_LOG, job_log) if path.is_file()), None)
    return {
        "sampler": run[0],
        "goal_space": run[1],
        "seed": run[2],
        "reason": _reason(folder, job_log)[:LONGEST_REASON],
        "log": log.relative_to(results).as_posix() if log else None,
    }


def _reason(folder: Path, job_log: Path) -> str:
    """Why a run is missing: its manifest, its last attempt, or the last words of its job."""
    if (folder / MANIFEST).exists():
        try:
            read_run_manifest(folder)
        except InputError as error:
            return str(error).replace(f"{folder}/", "")
        return OTHER_CONFIGURATION
    attempts = Attempts(folder, "").read()
    if attempts:
        reason = " ".join(str(attempts[-1]["reason"]).split())
        return {KILLED: NO_END, "complete": FILES_GONE}.get(reason, reason)
    try:
        lines = job_log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return NOT_STARTED
    return next((line.strip() for line in reversed(lines) if line.strip()), NOT_STARTED)


def describe_missing(missing: Iterable[Mapping[str, Any]], results: Path) -> str:
    """One line per missing run: which, why, and where its log is."""
    lines = []
    for entry in missing:
        log = f" ({results / entry['log']})" if entry["log"] else ""
        lines.append(f"  {run_name(run_of(entry))}: {entry['reason']}{log}")
    return "\n".join(lines)


# --- numbers of seeds ------------------------------------------------------------------------


def seeds_by_sampler(runs: Iterable[Run]) -> dict[str, dict[str, list[int]]]:
    """Goal space -> sampler -> its seeds, for the runs that are there."""
    found: dict[str, dict[str, list[int]]] = {}
    for sampler, goal_space, seed in runs:
        found.setdefault(goal_space, {}).setdefault(sampler, []).append(seed)
    return found


def number_text(numbers: Iterable[int]) -> str:
    """Numbers of seeds as one number or a range: `4`, or `3 to 4`."""
    listed = list(numbers)
    fewest, most = min(listed), max(listed)
    return f"{most}" if fewest == most else f"{fewest} to {most}"


# --- table and page --------------------------------------------------------------------------


def table(manifest: Mapping[str, Any]) -> pages.Table:
    """Samplers x goal spaces: complete of declared seeds, and the missing ones."""
    experiment = manifest["experiment"]
    there = seeds_by_sampler(map(run_of, manifest["runs"]))
    rows = []
    for sampler in experiment["samplers"]:
        row = [sampler]
        for goal_space in experiment["goal_spaces"]:
            seeds = there.get(goal_space, {}).get(sampler, [])
            absent = [str(seed) for seed in experiment["seeds"] if seed not in seeds]
            cell = f"{len(seeds)} of {len(experiment['seeds'])}"
            row.append(f"{cell} (missing: {', '.join(absent)})" if absent else cell)
        rows.append(tuple(row))
    return pages.Table(sentence(manifest), ("Sampler", *experiment["goal_spaces"]), tuple(rows))


def missing_table(manifest: Mapping[str, Any]) -> pages.Table:
    """One row per missing run, with the reason and the place of its log."""
    rows = tuple(
        (*map(str, run_of(entry)), entry["reason"], entry["log"] or "none")
        for entry in manifest.get("missing", ())
    )
    return pages.Table("Missing runs", ("Sampler", "Goal space", "Seed", "Reason", "Log"), rows)


def sentence(manifest: Mapping[str, Any]) -> str:
    """How much of the declared grid is there, in one line."""
    declared, there = len(declared_runs(manifest["experiment"])), len(manifest["runs"])
    if there == declared:
        return f"All {declared} declared runs are complete"
    return f"Incomplete grid: {there} of {declared} declared runs are complete"


def to_html(manifest: Mapping[str, Any]) -> str:
    """Coverage of the grid as a page for the report."""
    tables = [table(manifest)]
    if manifest.get("missing"):
        tables.append(missing_table(manifest))
    return pages.page("Coverage of the grid", tables)
