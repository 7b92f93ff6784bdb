"""Where each rule breaks on the simulated learner: tables of `python -m magellan axes`.

Cells are the share of the distance from `random` to `oracle`, with the interval of the difference
to `random` divided by that distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.standing import Standing, standings
from analysis.tables.printing import Table, chance, interval_cell
from analysis.tables.reading import read_columns
from analysis.tables.results import TableSpec
from magellan.core.errors import InputError
from magellan.core.parsing import read_json_object
from magellan.samplers.conformance import GROUPS

FLOOR, CEILING, BASE = "random", "oracle", "base"
GIVEN_UP = ("success", "final", "seconds")
TABLE = TableSpec(
    ("sampler", "track", "axis", "value", "seed", *GIVEN_UP, "estimation_episodes"),
    ("sampler", "axis", "value", "seed"),
    gaps=GIVEN_UP,
)
MARKS = {"ahead": "", "equal": " =", "behind": " -"}
"""Suffixes of cells: not told apart from `random` (=), behind it (-)."""


class Axes(NamedTuple):
    """The table, and its metadata: settings, date and code version."""

    frame: pd.DataFrame
    metadata: Mapping[str, Any]


def load(path: Path) -> Axes:
    """Load a table and its metadata file.

    Raises:
        InputError: one is missing or invalid.
    """
    frame, metadata = read_columns(path, TABLE), read_json_object(path.with_suffix(".json"))
    base = metadata.get(BASE)
    for axis in sorted(set(frame["axis"]) - {BASE}):
        if not isinstance(base, dict) or type(base.get(axis)) not in (int, float):
            raise InputError(f"{path}: {BASE} of the JSON file has no number of the axis {axis!r}")
    twice = frame[frame.duplicated(list(TABLE.keys))]
    for sampler, axis, value, seed in twice[list(TABLE.keys)].head(1).itertuples(index=False):
        where = f"{sampler}, {axis} {value}, seed {seed}"
        raise InputError(f"{path}: {where} is there twice; allowed: each run once")
    return Axes(frame, metadata)


def place(axes: Axes, axis: str = BASE, value: float = 0.0) -> pd.DataFrame:
    """Rows at a value of an axis; rows of the base if that is its value."""
    frame = axes.frame
    if axis == BASE or value == axes.metadata[BASE][axis]:
        return frame[frame["axis"] == BASE]
    return frame[(frame["axis"] == axis) & (frame["value"] == value)]


def scores_of(rows: pd.DataFrame) -> tuple[dict[str, pd.Series], dict[str, str]]:
    """Scores by seed, (seeds,), and tracks of the rules of a place that finished all their runs."""
    given_up = rows.loc[rows["success"].isna(), "sampler"]
    finished = rows[~rows["sampler"].isin(given_up)].sort_values("seed")
    scores = {
        str(name): group.set_index("seed")["success"].astype(np.float64)
        for name, group in finished.groupby("sampler", sort=False)
    }
    tracks = dict(zip(finished["sampler"], finished["track"], strict=True))
    tracks.pop(CEILING, None)
    return scores, tracks


def standings_of(rows: pd.DataFrame) -> dict[str, Standing]:
    """Standings of these rules, best first.

    Raises:
        InputError: `FLOOR` or `CEILING` has no finished runs here.
    """
    scores, tracks = scores_of(rows)
    for name in (FLOOR, CEILING):
        if name not in scores:
            raise InputError(f"axes: {name} has no finished runs at a value; allowed: some at each")
    return {rule.rule: rule for rule in standings(scores, tracks, FLOOR, CEILING)}


def tables(axes: Axes) -> list[Table]:
    """Where each rule breaks, then a table of numbers for each axis."""
    by_axis = {
        axis: {
            value: standings_of(place(axes, axis, value))
            for value in sorted({float(axes.metadata[BASE][axis]), *map(float, rows["value"])})
        }
        for axis, rows in axes.frame.groupby("axis", sort=False)
        if axis != BASE
    }
    base = standings_of(place(axes))
    del base[FLOOR]
    return [
        _overview(axes, by_axis, base),
        *(_axis_table(axis, by_value, list(base), axes) for axis, by_value in by_axis.items()),
    ]


ByValue = Mapping[float, Mapping[str, Standing]]
"""Standings by the value of an axis and by rule."""


def _overview(axes: Axes, by_axis: Mapping[str, ByValue], base: Mapping[str, Standing]) -> Table:
    rows, seconds = [], place(axes).groupby("sampler")["seconds"].mean()
    behind = [rule for rule, standing in base.items() if standing.verdict != "ahead"]
    for rule, standing in base.items():
        if rule in behind:
            continue
        name = f"`{rule}`" + ("†" if standing.track == GROUPS else "")
        numbers = [_share(standing), chance(standing.p_best) or "best", f"{seconds[rule]:.2g}"]
        cells = [_breaks(axis, each, rule, axes) for axis, each in by_axis.items()]
        rows.append([name, *numbers, "; ".join(filter(None, cells))])
    caption = (
        "Where each sampler breaks: values of an axis at which it is not told apart from random (="
        ") or behind it (-); †: told the groups"
    )
    if behind:
        caption += f"; not ahead at the base: {', '.join(f'`{rule}`' for rule in behind)}"
    return Table(caption, ["sampler", "base", "p, track's best", "seconds", "breaks at"], rows)


def _breaks(axis: str, by_value: ByValue, rule: str, axes: Axes) -> str:
    cells = []
    for value, by_rule in by_value.items():
        if rule not in by_rule:
            cells.append(f"{_number(value)} {_absence(axes, axis, value, rule)}")
        elif by_rule[rule].verdict != "ahead":
            cells.append(f"{_number(value)}{MARKS[by_rule[rule].verdict]}")
    return f"{axis} {', '.join(cells)}" if cells else ""


def _absence(axes: Axes, axis: str, value: float, rule: str) -> str:
    started = (place(axes, axis, value)["sampler"] == rule).any()
    return "given up" if started else "not run"


def _axis_table(axis: str, by_value: ByValue, rules: list[str], axes: Axes) -> Table:
    rows = []
    for rule in rules:
        cells = [
            _share(by_rule[rule]) if rule in by_rule else _absence(axes, axis, value, rule)
            for value, by_rule in by_value.items()
        ]
        rows.append([f"`{rule}`", *cells])
    n = {standing.n for by_rule in by_value.values() for standing in by_rule.values()}
    seeds = " to ".join(map(str, sorted({min(n), max(n)})))
    caption = f"{axis}: share of the way from random to oracle, n = {seeds}"
    return Table(caption, ["sampler", *map(_number, by_value)], rows)


def _share(standing: Standing) -> str:
    """`0.23 (0.20 to 0.26)`, and a mark; empty where the oracle is no better than `random`."""
    assert standing.gain is not None
    assert standing.regret is not None
    distance = standing.gain.value + standing.regret.value
    if distance == 0.0:
        return ""
    value, low, high = (number / distance for number in standing.gain)
    return f"{value:.2f} ({interval_cell(low, high, '.2f')}){MARKS[standing.verdict]}"


def _number(value: float) -> str:
    power = int(np.log10(value)) if value >= 1_000 else 0
    return f"10^{power}" if power and value == 10**power else f"{value:g}"
