"""The leaderboard as a picture: a panel for each place, a row for each sampler."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.tables.grid import Algorithm
from analysis.tables.results import rows_where
from magellan.samplers.conformance import GROUPS, SAME

COLUMNS = 2
ROW_INCHES, PANEL_INCHES, NAME_INCHES = 0.22, 4.0, 1.05
AROUND_INCHES, BELOW_INCHES = 0.95, 0.55
SIZE, LARGE = 11.0, 12.0
TRACKS = {GROUPS: "told the groups", SAME: "not told"}


def draw(rows: pd.DataFrame) -> Figure:
    """Success over training with its interval, by place and track, best first.

    Args:
        rows: `results/reference/leaderboard.csv`.
    """
    places = [place for _, place in rows.groupby("world", sort=False)]
    length = -(-len(places) // COLUMNS)
    columns = [places[i : i + length] for i in range(0, len(places), length)]
    heights = [sum(AROUND_INCHES + ROW_INCHES * _rows(one) for one in each) for each in columns]
    width, height = PANEL_INCHES * len(columns), max(heights)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for i, column in enumerate(columns):
        bottom = height
        for place in column:
            tall = ROW_INCHES * _rows(place)
            bottom -= AROUND_INCHES + tall
            left, wide = i * PANEL_INCHES + NAME_INCHES, PANEL_INCHES - NAME_INCHES - 0.15
            box = left / width, (bottom + BELOW_INCHES) / height, wide / width, tall / height
            _panel(figure.add_axes(box), place)
    return figure


def _algorithm(rule: str) -> Algorithm:
    """The sampler, and the variant that the row names behind a slash."""
    sampler, _, variant = rule.partition("/")
    return Algorithm(sampler, variant)


def _rows(place: pd.DataFrame) -> int:
    """Rows of a panel: one for each sampler and track."""
    return len(place) + place["track"].nunique()


def _panel(ax: Axes, place: pd.DataFrame) -> None:
    names: dict[float, str] = {}
    styles = style.algorithm_styles([_algorithm(rule) for rule in place["rule"]])
    y = 0
    for track, title in TRACKS.items():
        ranked = rows_where(place, track=track).sort_values("success", ascending=False)
        if len(ranked):
            text = {"size": SIZE, "color": style.GREY, "va": "center", "style": "italic"}
            ax.text(0.0, y, title, transform=ax.get_yaxis_transform(), **text)
            y += 1
        for row in ranked.itertuples():
            color = styles[_algorithm(str(row.rule))].color
            ax.plot([row.success_low, row.success_high], [y, y], color=color, lw=2.2)
            ax.plot(row.success, y, "o", color=color, markersize=6)
            names[y] = str(row.rule)
            y += 1
    ax.set_yticks(list(names), list(names.values()))
    ax.set_ylim(_rows(place) - 0.4, -0.6)
    ax.set_xlim(0, 1.05 * place["success_high"].max())
    ax.tick_params(labelsize=SIZE, length=0)
    ax.set_xlabel(f"success over training, n = {place['n'].max()}", size=SIZE)
    ax.set_title(place["world"].iloc[0], loc="left", size=LARGE, weight="bold")
