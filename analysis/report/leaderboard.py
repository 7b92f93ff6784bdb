"""The leaderboard: every sampler in every place with committed tables of `results/reference`.

A sampler with a single seed in a place has no interval and no row there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.statistics import summaries
from analysis.statistics.standing import Standing, scores_of, standings
from analysis.studies import axes
from analysis.studies.axes import CEILING, FLOOR
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import LEVEL, chance, head, interval_cell, row
from analysis.tables.results import rows_where
from magellan.core.errors import InputError
from magellan.core.files import write_atomically, write_table
from magellan.samplers.conformance import GROUPS, SAME, track_of
from magellan.worlds import WORLDS

BEGIN, END = "<!-- begin: leaderboard -->", "<!-- end: leaderboard -->"
BLOCK = re.compile(f"{BEGIN}\n(.*?){END}", re.DOTALL)
TABLES = (
    ("rules_long", "frontier"),
    ("rules", "experimenter/scripted", "experimenter/smollm2"),
    ("craft",),
    ("grpo", "grpo_groups"),
)
"""Folders of combined tables, for each place those of the same seeds and length, in the variant of
the experiment's reference, or in a named one, as FOLDER/VARIANT."""
HELD_OUT = {"grpo"}
"""Folders scored on held-out goals, as their protocols say."""
PROTOCOLS = {"magellan": 0.079, "pcl": 0.127}
"""p of `frontier` minus these, where it is the best of its track: that of its study's protocol, of
eight tests on both splits (docs/studies/rules.md)."""
SIMULATED = "axes"
COLUMNS = (
    *("rule", "world", "track", "success", "success_low", "success_high"),
    *("gain", "gain_low", "gain_high", "p_floor", "regret", "regret_low", "regret_high"),
    *("p_best", "n", "seconds", "estimation_episodes", "tokens", "date", "version", "tables"),
)


class Place(NamedTuple):
    """Where rules were compared: the world and the training length."""

    world: str
    scores: Mapping[str, pd.Series]  # of each rule by seed, (seeds,)
    costs: pd.DataFrame  # of each rule: seconds per run, estimation-only episodes, chat tokens
    tracks: Mapping[str, str]
    date: str
    version: str
    folders: Sequence[str]
    planned: int = 0  # seeds of the protocol; with fewer runs the place claims nothing


HEADER = ("success over training", "over `random`")
"""Columns of the page after the track's."""

Row = tuple[Standing, Place]
"""A rule in a place."""


def rows(reference: Path) -> list[Row]:
    """All rows, grouped by place, best rule first."""
    places = [*(_load_place(reference, names) for names in TABLES), _load_simulated(reference)]
    return [
        (standing, place)
        for place in places
        for standing in standings(place.scores, place.tracks, FLOOR, _ceiling(place))
    ]


def _ceiling(place: Place) -> str:
    if CEILING in place.scores:
        return CEILING
    told = [rule for rule, track in place.tracks.items() if track == GROUPS]
    return max(told, key=lambda rule: float(place.scores[rule].mean()))


def _load_place(reference: Path, folders: Sequence[str]) -> Place:
    """Experiments with the same seeds: the first goal space, in the variant of the reference."""
    scores: dict[str, pd.Series] = {}
    costs: list[pd.DataFrame] = []
    runs: list[Mapping[str, Any]] = []
    for name in folders:
        folder, _, variant = name.partition("/")
        results = store.load(reference / folder)
        split = "unseen" if HELD_OUT & {*folders} else "train"
        found = scores_of(results, split=split, variant=variant).items()
        label = f"/{variant}" if variant else ""
        scores |= {rule + label: by_seed for rule, by_seed in found if len(by_seed) > 1}
        spent = [run.get("chat", {"tokens": ()})["tokens"] for run in results.manifest["runs"]]
        table = summaries.cost(results).assign(tokens=[sum(tokens) for tokens in spent])
        table = rows_where(table, variant=variant or results.reference.variant)
        costs.append(table.assign(sampler=table["sampler"] + label))
        runs += results.manifest["runs"]
    world, longest = WORLDS.get(name := runs[0]["world"]["name"]), max(r["steps"] for r in runs)
    length = f"{longest:,} steps"
    if world and world.answer_tokens:  # the last answers go a little beyond
        length = f"{longest // 1_000}k tokens, held-out"
    return Place(
        f"{world.label if world else name}, {length}",
        scores,
        _mean_costs(pd.concat(costs).rename(columns={"wall_seconds": "seconds"})),
        {name: track_of(name.partition("/")[0]) for name in scores},
        max(run["finished"] for run in runs)[:10],
        ", ".join(sorted({run["code_version"] for run in runs})),
        folders,
        len(results.experiment["seeds"]),
    )


def _mean_costs(runs: pd.DataFrame) -> pd.DataFrame:
    columns = ["seconds", "estimation_episodes", "tokens"]
    return pd.DataFrame({name: rows[columns].mean() for name, rows in runs.groupby("sampler")}).T


def _load_simulated(reference: Path) -> Place:
    """The base point of the axes of difficulty."""
    table = axes.load(reference / SIMULATED / "axes.csv")
    rows = axes.place(table).dropna(subset="success")
    about = (str(table.metadata["finished"])[:10], str(table.metadata["code_version"]))
    scores, tracks = axes.scores_of(rows)
    costs = _mean_costs(rows.assign(tokens=0))
    return Place("Simulated learner", scores, costs, tracks, *about, (SIMULATED,))


# --- the table ------------------------------------------------------------------------------------


def cells(entry: Row) -> list[str]:
    """A row of the CSV, in the order of `COLUMNS`; missing values are empty."""
    standing, place = entry
    intervals = (standing.success, standing.gain, standing.regret)
    success, gain, regret = (
        ["" if np.isnan(number) else f"{number:.4f}" for number in interval or (np.nan,) * 3]
        for interval in intervals
    )
    p_values = ["" if np.isnan(p) else f"{p:.4g}" for p in (standing.p_floor, standing.p_best)]
    cost = [f"{number:.4g}" for number in place.costs.loc[standing.rule]]
    names = [standing.rule, place.world, standing.track]
    numbers = [*success, *gain, p_values[0], *regret, p_values[1], str(standing.n), *cost]
    return [*names, *numbers, place.date, place.version, " ".join(place.folders)]


def write(entries: Sequence[Row], path: Path, numbers: Path) -> None:
    """Write the block `leaderboard` of a page, and all numbers as CSV.

    Raises:
        InputError: the page is missing or has no such block.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = BLOCK.split(text)
    if len(parts) != 3:
        raise InputError(f"--page: {path} has no block `leaderboard`; allowed: a page with one")
    write_atomically(path, f"{parts[0]}{BEGIN}\n{page(entries)}\n{END}{parts[2]}".encode())
    write_table(numbers, COLUMNS, map(cells, entries))


def page(entries: Sequence[Row]) -> str:
    """A table for each place, in Markdown, without samplers that are not told apart from random."""
    places = itertools.groupby(entries, lambda entry: entry[1].world)
    return "\n\n".join(_place_tables([*group]) for _, group in places)


def _place_tables(entries: Sequence[Row]) -> str:
    place = entries[0][1]
    tables = dict.fromkeys(name.partition("/")[0] for name in place.folders)
    folders = ", ".join(f"`results/reference/{name}`" for name in tables)
    n = entries[0][0].n
    lines = [f"### {place.world}", "", f"n = {n}, tables {folders}."]
    if n < place.planned:
        lines[-1] += f" {n} of {place.planned} planned seeds: this claims nothing yet."
    ranked = [standing for standing, _ in entries]
    equal = [one for one in ranked if one.rule != FLOOR and one.verdict == "equal"]
    for number, track in enumerate(dict.fromkeys(one.track for one in ranked)):
        lines += [row([f"**{track}**", "", ""])] if number else ["", *head([track, *HEADER])]
        for one in ranked:
            if one.track == track and one not in equal:
                over, gain = "", one.gain
                if gain is not None:
                    over = f"{gain.value:+.2f} ({interval_cell(gain.low, gain.high, '+.2f')})"
                lines.append(row([f"`{one.rule}`", f"{one.success.value:.2f}", over]))
    protocols = PROTOCOLS if "frontier" in place.folders else {}
    best = {one.rule: protocols.get(one.rule, one.p_best) for one in ranked}
    near = sorted(p for p in best.values() if p >= LEVEL)
    ends = " to ".join(dict.fromkeys(chance(p) for p in (*near[:1], *near[-1:])))
    named = [f"`{rule}`" for rule, p in best.items() if p >= LEVEL]
    apart = {
        f"the best of their track (p = {ends})": named,
        f"`{FLOOR}`": [f"`{one.rule}` {one.success.value:.2f}" for one in equal],
    }
    for other, names in apart.items():
        if names:
            lines += ["", f"Not told apart from {other}: {', '.join(names)}."]
    return "\n".join(lines)


# --- the picture: a panel for each place, a row for each sampler ---


PANELS = 2
ROW_INCHES, PANEL_INCHES, LETTER_INCHES, RIGHT_INCHES = 0.22, 2.8, 0.085, 0.15
AROUND_INCHES, BELOW_INCHES = 0.95, 0.55
SIZE, LARGE = 11.0, 12.0
TRACKS = {GROUPS: "told the groups", SAME: "not told"}


def draw(rows: pd.DataFrame) -> Figure:
    """Success over training with its interval, by place and track, from `leaderboard.csv`."""
    places = [place for _, place in rows.groupby("world", sort=False)]
    length = -(-len(places) // PANELS)
    columns = [places[i : i + length] for i in range(0, len(places), length)]
    heights = [sum(AROUND_INCHES + ROW_INCHES * _lines(one) for one in each) for each in columns]
    names = [LETTER_INCHES * pd.concat(each)["rule"].str.len().max() for each in columns]
    height, beside = max(heights), PANEL_INCHES + RIGHT_INCHES
    width, left = sum(names) + beside * len(columns), 0.0
    figure = style.canvas(width, height)
    for name, column in zip(names, columns, strict=True):
        bottom = height
        left += name
        for place in column:
            tall = ROW_INCHES * _lines(place)
            bottom -= AROUND_INCHES + tall
            sides = PANEL_INCHES / width, tall / height
            box = left / width, (bottom + BELOW_INCHES) / height, *sides
            _panel(figure.add_axes(box), place)
        left += beside
    return figure


def _lines(place: pd.DataFrame) -> int:
    return len(place) + place["track"].nunique()


def _panel(ax: Axes, place: pd.DataFrame) -> None:
    names: dict[float, str] = {}
    # The sampler, and the variant that the row names behind a slash.
    names_of = {Algorithm(*rule.partition("/")[::2]): rule for rule in place["rule"]}
    looks = style.algorithm_styles(names_of).items()
    colors = {names_of[algorithm]: look.color for algorithm, look in looks}
    y = 0
    for track, title in TRACKS.items():
        ranked = rows_where(place, track=track).sort_values("success", ascending=False)
        if len(ranked):
            text = {"size": SIZE, "color": style.GREY, "va": "center", "style": "italic"}
            ax.text(0.0, y, title, transform=ax.get_yaxis_transform(), **text)
            y += 1
        for rule, *_, success, low, high in ranked.loc[:, :"success_high"].itertuples(index=False):
            ax.plot([low, high], [y, y], color=colors[rule], lw=2.2)
            ax.plot(success, y, "o", color=colors[rule], markersize=6)
            names[y] = rule
            y += 1
    ax.set_yticks(list(names), list(names.values()))
    ax.set_ylim(_lines(place) - 0.4, -0.6)
    ax.set_xlim(0, 1.05 * place["success_high"].max())
    ax.tick_params(labelsize=SIZE, length=0)
    ax.set_xlabel(f"success over training, n = {place['n'].max()}", size=SIZE)
    ax.set_title(place["world"].iloc[0], loc="left", size=LARGE, weight="bold")
