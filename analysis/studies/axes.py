"""Where each rule breaks: the simulated learner's table, `python -m magellan axes`.

Cells are shares of the way from `random` to `oracle`, with the interval of the difference to
`random` divided by the length of that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.intervals import Matrix
from analysis.statistics.standing import Standing, standings
from analysis.tables.printing import Table
from magellan.core.errors import InputError
from magellan.core.parsing import parse_json

FLOOR, CEILING, BASE = "random", "oracle", "base"
COLUMNS = ("sampler", "track", "axis", "value", "seed", "success", "final", "seconds")
MARKS = {"ahead": "", "equal": " =", "behind": " -"}
"""Behind a cell: not told apart from `random`, or behind it."""


class Axes(NamedTuple):
    """The table, and what it was made with."""

    frame: pd.DataFrame
    about: Mapping[str, object]


def load(path: Path) -> Axes:
    """A table and the file beside it.

    Raises:
        InputError: one is missing or holds something else.
    """
    try:
        frame = pd.read_csv(path)
        about = parse_json(path.with_suffix(".json").read_text(encoding="utf-8"), f"{path}:")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no table of python -m magellan axes ({error})") from None
    absent = [name for name in COLUMNS if name not in frame]
    if absent or not isinstance(about, dict) or not isinstance(about.get(BASE), dict):
        raise InputError(f"{path}: no table of python -m magellan axes; missing: {absent or BASE}")
    return Axes(frame, about)


def place(axes: Axes, axis: str = BASE, value: float = 0.0) -> pd.DataFrame:
    """Rows at a value of an axis; those of the base where it has that value."""
    frame = axes.frame
    base: Mapping[str, float] = axes.about[BASE]  # type: ignore[assignment]
    if axis == BASE or value == base[axis]:
        return frame[frame["axis"] == BASE]
    return frame[(frame["axis"] == axis) & (frame["value"] == value)]


def standings_of(rows: pd.DataFrame) -> list[Standing]:
    """Rules of a place that have runs there and were not given up."""
    whole = rows.dropna(subset="success").sort_values("seed")
    scores: dict[str, Matrix] = {
        str(name): group["success"].to_numpy(np.float64)
        for name, group in whole.groupby("sampler", sort=False)
    }
    tracks = dict(zip(whole["sampler"], whole["track"], strict=True))
    tracks.pop(CEILING, None)
    return standings(scores, tracks, FLOOR, CEILING)


def values_of(axes: Axes, axis: str) -> list[float]:
    """Values of an axis, the base's among them, increasing."""
    base: Mapping[str, float] = axes.about[BASE]  # type: ignore[assignment]
    mine = axes.frame.loc[axes.frame["axis"] == axis, "value"].unique()
    return sorted({float(base[axis]), *map(float, mine)})


def tables(axes: Axes) -> list[Table]:
    """Where each rule breaks, then the numbers, an axis after the other."""
    names = [axis for axis in dict.fromkeys(axes.frame["axis"]) if axis != BASE]
    found = {
        axis: {
            value: {each.rule: each for each in standings_of(place(axes, axis, value))}
            for value in values_of(axes, axis)
        }
        for axis in names
    }
    base = {each.rule: each for each in standings_of(place(axes))}
    rules = [(each.rule, each.track) for each in base.values() if each.rule != FLOOR]
    return [
        _overview(axes, found, base, rules),
        *(_of_axis(axis, each, rules, axes) for axis, each in found.items()),
    ]


Places = Mapping[float, Mapping[str, Standing]]
"""Rules by the value of an axis."""


def _overview(
    axes: Axes,
    found: Mapping[str, Places],
    base: Mapping[str, Standing],
    rules: list[tuple[str, str]],
) -> Table:
    rows = []
    for rule, track in rules:
        mine = base[rule]
        if mine.verdict == "ahead":
            cells = [_breaks(axis, each, rule, axes) for axis, each in found.items()]
        else:
            cells = ["" for _ in found]
        untold = "best" if np.isnan(mine.p_best) else "no" if mine.p_best < 0.05 else "yes"
        cost = place(axes)[place(axes)["sampler"] == rule]
        numbers = [f"{cost['seconds'].mean():.2g}", f"{cost['estimation_episodes'].mean():,.0f}"]
        rows.append([f"`{rule}`", track, _share(mine), untold, *cells, *numbers])
    caption = (
        "Where each rule breaks: values of an axis at which it is not told apart from random (=) or"
        " behind it (-); empty where it is not ahead at the base"
    )
    header = ["rule", "track", "base", "level with the track's best", *found]
    return Table(caption, [*header, "seconds", "episodes to estimate"], rows)


def _breaks(axis: str, places: Places, rule: str, axes: Axes) -> str:
    """Values at which a rule that is ahead at the base is not."""
    cells = []
    for value, standing in places.items():
        if rule in standing:
            if standing[rule].verdict != "ahead":
                cells.append(f"{_number(value)}{MARKS[standing[rule].verdict]}")
        elif (place(axes, axis, value)["sampler"] == rule).any():
            cells.append(f"{_number(value)} given up")
        else:
            cells.append(f"{_number(value)} not run")
    return ", ".join(cells) or "holds"


def _of_axis(axis: str, places: Places, rules: list[tuple[str, str]], axes: Axes) -> Table:
    rows = []
    for rule, _ in rules:
        cells = []
        for value, standing in places.items():
            there = (place(axes, axis, value)["sampler"] == rule).any()
            known = _share(standing[rule]) if rule in standing else "given up"
            cells.append(known if there else "not run")
        rows.append([f"`{rule}`", *cells])
    n = {each.n for standing in places.values() for each in standing.values()}
    seeds = " to ".join(map(str, sorted({min(n), max(n)})))
    caption = f"{axis}: share of the way from random to oracle, n = {seeds}"
    return Table(caption, ["rule", *map(_number, places)], rows)


def _share(standing: Standing) -> str:
    """`.23 (.20 to .26)`, and a mark."""
    assert standing.gain is not None
    assert standing.regret is not None
    way = standing.gain.value + standing.regret.value
    value, low, high = (f"{each / way:.2f}" for each in standing.gain)
    return f"{value} ({low} to {high}){MARKS[standing.verdict]}"


def _number(value: float) -> str:
    power = int(np.log10(value)) if value >= 1_000 else 0
    return f"10^{power}" if power and value == 10**power else f"{value:g}"
