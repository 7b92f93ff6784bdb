"""Measure the groups of rows and write the tables."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.effort import FULL, QUICK, Effort
from benchmarks.rows import Row, number, to_csv, to_markdown
from benchmarks.timing import MatmulRate
from benchmarks.world import environment_rows, goal_rows, sampler_rows
from magellan.core.errors import InputError

Rows = Iterator[Row]


def _rows_of_model(shape: str) -> Callable[[Effort], Rows]:
    """Rows of a model; imports its libraries only when called."""

    def rows(effort: Effort) -> Rows:
        from benchmarks.models import model_rows, whole_space_rows

        return whole_space_rows(effort) if shape == "all" else model_rows(shape, effort)

    return rows


GROUPS: dict[str, Callable[[Effort], Rows]] = {
    "environment": environment_rows,
    "goals": goal_rows,
    "samplers": sampler_rows,
    **{shape: _rows_of_model(shape) for shape in ("zoo-mini", "t5", "all")},
}
"""Name to rows; `all` is the loop on all 19.5 million goals."""


def run(output: Path, only: Sequence[str] | None = None, quick: bool = False) -> str:
    """Measure, and write bench.md, bench.csv and manifest.json to a folder; returns the Markdown.

    Args:
        output: the folder; created if absent, files of an earlier benchmark are overwritten.
        only: names of `GROUPS`; None: all.
        quick: fewer repetitions, goal spaces and rows.

    Raises:
        InputError: an unknown group, or a folder that cannot be written.
    """
    names = list(GROUPS) if not only else list(dict.fromkeys(only))
    for name in names:
        if name not in GROUPS:
            raise InputError(f"--only: {name!r} is unknown; allowed: {', '.join(GROUPS)}")
    prepare_folder(output)
    started, wall, cpu = datetime.now(UTC), time.monotonic(), _cpu_seconds()
    core = MatmulRate()
    rows = _measure(names, QUICK if quick else FULL, core)
    markdown = to_markdown(rows, core.best)
    manifest = {
        **machine(),
        "matmul_gflop_per_second": core.best,
        "quick": quick,
        "groups": names,
        "started": started.isoformat(timespec="seconds"),
        "wall_seconds": round(time.monotonic() - wall, 1),
        # Nearly the wall time on an idle core, less if other processes used it.
        "cpu_seconds": round(_cpu_seconds() - cpu, 1),
    }
    (output / "bench.md").write_text(markdown, encoding="utf-8")
    (output / "bench.csv").write_text(to_csv(rows, core.best), encoding="utf-8")
    (output / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return markdown


def _measure(names: Sequence[str], effort: Effort, core: MatmulRate) -> list[Row]:
    """All rows of the groups; measures the speed of the core after each."""
    rows = []
    for name in names:
        for row in GROUPS[name](effort):
            core.measure()
            rows.append(row)
            figure = f"{number(row.value)} {row.unit}"
            print(f"{name}: {row.row} {row.size}: {figure}", file=sys.stderr, flush=True)
    return rows


def _cpu_seconds() -> float:
    """CPU time of this process and its finished children."""
    return sum(os.times()[:4])


def prepare_folder(output: Path) -> None:
    """Create the folder and check that it is writable."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written ({error.strerror})") from error


def machine() -> dict[str, Any]:
    """Machine, libraries and code of the measurements."""
    from magellan.backends.machine import cpu_model
    from magellan.jobs.versions import code_version, library_versions

    return {
        "schema_version": 1,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": 1,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": library_versions(),
        "code_version": code_version(),
    }
