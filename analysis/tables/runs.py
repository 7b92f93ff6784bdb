"""What each run took: time, memory, restarts. From the manifests of the combined tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.tables import html
from analysis.tables.coverage import has_variants, notes_text, sentence
from analysis.tables.grid import run_of
from analysis.tables.markdown import Table
from magellan.core.errors import printable

UNKNOWN = "n/a"
COLUMNS = (
    "Sampler",
    "Variant",
    "Goal space",
    "Seed",
    "Minutes",
    "Peak memory, MB",
    "Updates",
    "Steps/s",
    "Restarts",
    "Attempts",
    "Earlier stops",
    "Saving, % of time",
    "Device",
    "Threads",
    "Machine",
)
MEDIAN_COLUMNS = (
    "Sampler",
    "Variant",
    "Goal space",
    "Runs",
    "Minutes",
    "Peak memory, MB",
    "Updates",
    "Steps/s",
    "Restarts",
    "Saving, % of time",
)

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


def table(runs: Iterable[RunManifest]) -> Table:
    """One row per run."""
    rows = tuple(
        (
            *map(str, run_of(run)),
            _number(minutes(run), 1),
            _number(run.get("peak_memory_mb"), 0),
            _number(run.get("updates"), 0),
            _number(steps_per_second(run), 0),
            _number(run.get("restarts"), 0),
            _number(run.get("attempts"), 0),
            _earlier_stops(run.get("stop_reasons")),
            _number(saving_share(run), 2),
            _text(run.get("device")),
            _text(run.get("threads")),
            _text(run.get("host")),
        )
        for run in runs
    )
    return Table("Every run", COLUMNS, rows)


def median_table(runs: Iterable[RunManifest]) -> Table:
    """One row per algorithm and goal space: medians over its runs; restarts are summed."""
    groups: dict[tuple[str, ...], list[RunManifest]] = {}
    for run in runs:
        groups.setdefault(run_of(run)[:3], []).append(run)
    rows = tuple(
        (
            *where,
            str(len(group)),
            _number(_median(map(minutes, group)), 1),
            _number(_median(run.get("peak_memory_mb") for run in group), 0),
            _number(_median(run.get("updates") for run in group), 0),
            _number(_median(map(steps_per_second, group)), 0),
            _number(_sum(run.get("restarts") for run in group), 0),
            _number(_median(map(saving_share, group)), 2),
        )
        for where, group in groups.items()
    )
    caption = "Per sampler and variant: medians over runs; restarts of all its runs together"
    return Table(caption, MEDIAN_COLUMNS, rows)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _text(value: Any) -> str:
    return UNKNOWN if value is None else printable(str(value))


def _earlier_stops(reasons: list[str] | None) -> str:
    if reasons is None:
        return UNKNOWN
    return printable("; ".join(reasons[:-1])) or "none"


def to_html(manifest: Mapping[str, Any]) -> str:
    """Time, memory and restarts of all runs as a page for the report."""
    tables = [median_table(manifest["runs"]), table(manifest["runs"])]
    if not has_variants(manifest):
        tables = [_without_variant(each) for each in tables]
    note = " ".join(filter(None, [f"{sentence(manifest)}.", notes_text(manifest)]))
    return html.page("Runs", tables, note=note)


def _without_variant(whole: Table) -> Table:
    """A table without its second column."""
    rows = tuple((row[0], *row[2:]) for row in whole.rows)
    caption = whole.caption.replace("sampler and variant", "sampler")
    return Table(caption, (whole.columns[0], *whole.columns[2:]), rows)
