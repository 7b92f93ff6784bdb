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


def _model(shape: str) -> Callable[[Effort], Rows]:
    """Rows of a model; the libraries are loaded when they are asked for."""

    def rows(effort: Effort) -> Rows:
        from benchmarks.models import model_rows, whole_space_rows

        return whole_space_rows(effort) if shape == "all" else model_rows(shape, effort)

    return rows


GROUPS: dict[str, Callable[[Effort], Rows]] = {
    "environment": environment_rows,
    "goals": goal_rows,
    "samplers": sampler_rows,
    **{shape: _model(shape) for shape in ("zoo-mini", "t5", "all")},
}
"""Name to rows; `all` is the loop on all 19.5 million goals."""


def run(output: Path, only: Sequence[str] | None = None, quick: bool = False) -> str:
    """Measure, write bench.md, bench.csv and manifest.json to a folder, give the Markdown.

    Args:
        output: the folder; made when absent, what it holds of an earlier benchmark is replaced.
        only: names of `GROUPS`; all of them when None.
        quick: fewer repetitions, goal spaces and rows.

    Raises:
        InputError: an unknown group, or a folder that cannot be written.
    """
    names = list(GROUPS) if not only else list(dict.fromkeys(only))
    for name in names:
        if name not in GROUPS:
            raise InputError(f"--only: {name!r} is unknown; allowed: {', '.join(GROUPS)}")
    prepare_folder(output)
    started, clock, worked = datetime.now(UTC), time.monotonic(), _cpu_seconds()
    core = MatmulRate()
    rows = _measure(names, QUICK if quick else FULL, core)
    markdown = to_markdown(rows, core.best)
    manifest = {
        **machine(),
        "matmul_gflop_per_second": core.best,
        "quick": quick,
        "groups": names,
        "started": started.isoformat(timespec="seconds"),
        "wall_seconds": round(time.monotonic() - clock, 1),
        # On a quiet core nearly the wall time; less where others had the core.
        "cpu_seconds": round(_cpu_seconds() - worked, 1),
    }
    (output / "bench.md").write_text(markdown, encoding="utf-8")
    (output / "bench.csv").write_text(to_csv(rows, core.best), encoding="utf-8")
    (output / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return markdown


def _measure(names: Sequence[str], effort: Effort, core: MatmulRate) -> list[Row]:
    """All rows of the groups, with the speed of the core measured before and after each."""
    rows = []
    for name in names:
        for row in GROUPS[name](effort):
            core.measure()
            rows.append(row)
            figure = f"{number(row.value)} {row.unit}"
            print(f"{name}: {row.row} {row.size}: {figure}", file=sys.stderr, flush=True)
    return rows


def _cpu_seconds() -> float:
    """Processor time of this process and its finished children."""
    return sum(os.times()[:4])


def prepare_folder(output: Path) -> None:
    """Make the folder and be sure that it can be written."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written ({error.strerror})") from error


def machine() -> dict[str, Any]:
    """Where and with what the figures were measured."""
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
