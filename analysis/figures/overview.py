"""A study at a glance: what runs master, what they practise, and how one goes with the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from analysis.figures import style
from analysis.statistics.practice_shares import run_counts, until_mastery
from analysis.tables.grid import Algorithm, number_text, shorten
from analysis.tables.results import Results, rows_where

SMALL, LARGE = 11.0, 12.5
"""Sizes of text that can be read where the picture is 420 pixels wide."""
PANEL_INCHES, TICKS_INCHES, NUMBER_INCHES = 4.0, 0.95, 0.8
TITLE_INCHES, LABEL_INCHES, LEGEND_ROW_INCHES = 0.34, 0.55, 0.23
LINE_INCHES, BAR_INCHES, DOTS_INCHES = 0.2, 0.29, 0.85
RARE = 2
"""How many categories, the last of the world, are shown run by run."""
LEGEND_LETTERS = 50
"""Letters in a row of the legend."""
LONGER = (0, (2.2, 1.0))
Runs = Mapping[Algorithm, pd.DataFrame]
"""`practice_shares.until_mastery` of each algorithm."""


def overview(
    results: Results,
    statistics: Mapping[str, pd.DataFrame],
    goal_space: str,
    longer: Results | None = None,
    further: pd.DataFrame | None = None,
) -> Figure:
    """Categories mastered over training, shares of practice, and rare categories run by run.

    Args:
        longer: longer runs of the same samplers, dashed in the first panel.
        further: runs of other experiments, from `practice_shares.of_runs`: grey dots.
    """
    algorithms = results.algorithms_in(goal_space)
    runs = _runs(results, goal_space)
    rare = list(dict.fromkeys(runs[algorithms[0]]["category"]))[-RARE:]
    figure, axes = _panels(results, algorithms, len(rare))
    of_longer = {} if longer is None else _runs(longer, longer.goal_spaces[0])
    _mastered(axes[0], results, runs, of_longer)
    _practised(axes[1], results, goal_space, rare[-1])
    _dots(dict(zip(rare, axes[2:], strict=True)), results, runs, further)
    return figure


def _panels(
    results: Results, algorithms: Sequence[Algorithm], rare: int
) -> tuple[Figure, list[Axes]]:
    """The figure and its axes, with room for the names of algorithms beside the first two."""
    empty, bold = style.canvas(9.0, 1.0), {"size": SMALL, "weight": "bold"}
    texts = [empty.text(0, 0, results.figure_labels[name], **bold) for name in algorithms]
    names = max(float(text.get_window_extent().width) for text in texts) / empty.dpi + 0.25
    legend = LEGEND_ROW_INCHES * -(-len(results.categories) // _columns(results)) + 0.12
    # Of each panel: room above, height, room below, left and right, in inches.
    first = (TITLE_INCHES, LINE_INCHES * max(9, len(algorithms)), LABEL_INCHES, 0.4, names)
    second = (TITLE_INCHES, BAR_INCHES * len(algorithms), legend, names, NUMBER_INCHES)
    boxes = [first, second]
    for i in range(rare):
        above, below = (0.0 if i else TITLE_INCHES), (0.15 if i < rare - 1 else LABEL_INCHES + 0.2)
        boxes.append((above, DOTS_INCHES, below, TICKS_INCHES, 0.3))
    width, height = PANEL_INCHES + names + NUMBER_INCHES, sum(sum(box[:3]) for box in boxes)
    figure, top, axes = style.canvas(width, height), height, []
    for above, tall, below, left, right in boxes:
        top -= above + tall
        box = left / width, top / height, (width - left - right) / width, tall / height
        axes.append(figure.add_axes(box))
        top -= below
    return figure, axes


def _columns(results: Results) -> int:
    longest = max(len(shorten(category.words)) for category in results.categories)
    return min(3, max(1, LEGEND_LETTERS // longest))


def _runs(results: Results, goal_space: str) -> Runs:
    algorithms = results.algorithms_in(goal_space)
    return {name: until_mastery(results, name, goal_space) for name in algorithms}


def _mastered(ax: Axes, results: Results, runs: Runs, longer: Runs) -> None:
    """Mean number of categories that runs have mastered, over episodes: a step line each."""
    styles = style.styles_of(results)
    named = {algorithm.sampler: algorithm for algorithm in reversed(list(runs))}
    lines: list[tuple[Algorithm, pd.DataFrame, Any]] = [
        (name, frame, "-") for name, frame in runs.items()
    ]
    lines += [(named[a.sampler], f, LONGER) for a, f in longer.items() if a.sampler in named]
    first = max(1.0, min(frame["episode"].min() for _, frame, _ in lines) / 2)
    last = max(frame["end"].max() for _, frame, _ in lines)
    ends: dict[Algorithm, float] = {}
    for algorithm, frame, dash in lines:
        times = np.sort(frame.loc[frame["mastered"], "episode"]).clip(min=first)
        levels = np.arange(len(times) + 1) / frame["seed"].nunique()
        x = np.concatenate([[first], times, [frame["end"].max()]])
        look = {"color": styles[algorithm].color, "linestyle": dash, "linewidth": 2.2}
        ax.step(x, np.append(levels, levels[-1]), where="post", **look)
        ends[algorithm] = levels[-1]
    most = len(set(frame["category"]))
    ax.set_ylim(-0.04 * most, 1.04 * most)
    ax.set_yticks(range(most + 1))
    _name_ends(ax, results, ends)
    ax.set_xscale("log")
    ax.set_xlim(first, last)
    marks = (1, 2, 3, 5) if last < 50 * first else (1,)
    ticks = [mark * 10**power for power in range(9) for mark in marks]
    ax.set_xticks([tick for tick in ticks if first <= tick <= last])
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.minorticks_off()
    ax.tick_params(labelsize=SMALL)
    sizes = (map(len, (set(f["seed"]) for f in one.values())) for one in (runs, longer) if one)
    few, *more = map(number_text, sizes)
    of_runs = "; dashed: of ".join(["one run" if few == "1" else f"mean of {few} runs", *more])
    ax.set_xlabel(f"training episodes ({of_runs})", size=SMALL)
    ax.set_title("Categories mastered", loc="left", size=LARGE, weight="bold")


def _name_ends(ax: Axes, results: Results, ends: Mapping[Algorithm, float]) -> None:
    """Names beside the ends of lines, moved apart where lines end close to each other."""
    styles = style.styles_of(results)
    low, high = ax.get_ylim()
    gap = LINE_INCHES / max(1.7, LINE_INCHES * len(ends))
    names = sorted(ends, key=lambda name: ends[name])
    places = (np.array([ends[name] for name in names]) - low) / (high - low)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places = np.minimum(places, 1.0 - gap * np.arange(len(places))[::-1])
    for name, y in zip(names, places, strict=True):
        look = styles[name]
        text = {"color": look.color, "size": SMALL, "weight": "bold", "va": "center"}
        ax.text(1.015, y, look.label, transform=ax.transAxes, **text)


def _practised(ax: Axes, results: Results, goal_space: str, last: str) -> None:
    """A bar for each algorithm: mean shares of categories; beside it that of the last one."""
    styles, categories = style.styles_of(results), results.categories
    colors = style.category_colors(categories)
    algorithms = results.algorithms_in(goal_space)
    for y, algorithm in enumerate(algorithms):
        counts = run_counts(results, algorithm, goal_space).groupby("seed").sum()
        shares = counts.div(counts.sum(axis=1), axis=0).mean()
        spans = zip(shares.cumsum() - shares, shares, strict=True)
        faces = [colors[name] for name in shares.index]
        ax.broken_barh(list(spans), (y - 0.38, 0.76), facecolors=faces)
        percent = 100 * shares[last]
        number = f"{percent:.0f} %" if percent >= 1 else f"{percent:.2f} %"
        ax.text(1.015, y, number, size=SMALL, va="center")
    ax.set_yticks(range(len(algorithms)), [styles[name].label for name in algorithms])
    ax.tick_params(labelsize=SMALL, length=0)
    for label, algorithm in zip(ax.get_yticklabels(), algorithms, strict=True):
        label.set(color=styles[algorithm].color, weight="bold")
    ax.set_ylim(len(algorithms) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set_title("Share of practice", loc="left", size=LARGE, weight="bold")
    words = {category.name: shorten(category.words) for category in categories}
    note = {
        "xytext": (72 * NUMBER_INCHES - 4, 6),
        "textcoords": "offset points",
        "color": style.GREY,
        "ha": "right",
    }
    ax.annotate(words[last], (1, 1), xycoords="axes fraction", size=SMALL, **note)
    ax.legend(
        handles=[Patch(facecolor=colors[name], label=text) for name, text in words.items()],
        ncols=_columns(results),
        loc="upper right",
        bbox_to_anchor=(1.0, 0.0),
        fontsize=SMALL,
        borderpad=0.2,
        labelspacing=0.3,
        handlelength=1.0,
        columnspacing=1.0,
    )


def _dots(
    panels: Mapping[str, Axes], results: Results, runs: Runs, further: pd.DataFrame | None
) -> None:
    """For each category a dot for each run: its practice, and whether it masters the category."""
    styles = style.styles_of(results)
    parts = [] if further is None else [(further, style.PALE_GREY)]
    parts += [(frame, styles[name].color) for name, frame in runs.items()]
    every = pd.concat([frame for frame, _ in parts])
    every = every[every["category"].isin(list(panels))]
    ringed = runs.get(results.reference)
    for category, ax in panels.items():
        for order, (frame, color) in enumerate(parts):
            of_category = rows_where(frame, category=category)
            _scatter(ax, of_category, order, facecolors=color, edgecolors="none", s=22, alpha=0.8)
            if frame is ringed:
                _scatter(ax, of_category, order, facecolors="none", edgecolors="black", s=48)
        _tenfold_axis(ax, rows_where(every, category=category), every["practice"].max())
        words = results.categories.named(category).words
        ax.text(0.01, 0.97, words, transform=ax.transAxes, size=SMALL, weight="bold", va="top")
    axes = list(panels.values())
    axes[0].set_title("Practice and mastery", loc="left", size=LARGE, weight="bold")
    notes = ["a dot a run"] + ["grey: further studies"] * (further is not None)
    if ringed is not None:
        notes.append(f"{results.figure_labels[results.reference]} ringed")
    for ax in axes[:-1]:
        ax.tick_params(labelbottom=False)
    axes[-1].set_xlabel(f"episodes practised in the category\n{', '.join(notes)}", size=SMALL)


def _tenfold_axis(ax: Axes, runs: pd.DataFrame, most: float) -> None:
    """Practice from 0 to beyond `most`; for each tenfold how many of its runs master."""
    powers = range(int(np.log10(max(most, 1))) + 1)
    ax.set_xscale("symlog", linthresh=1, linscale=0.5)
    ax.set_xlim(-0.3, 10 ** len(powers))
    ax.set_xticks([0, *(10**power for power in (*powers, len(powers)))])
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.minorticks_off()
    ax.set_ylim(-0.45, 1.45)
    ax.set_yticks([0, 1], ["not", "mastered"])
    ax.tick_params(labelsize=SMALL)
    for power in powers:
        inside = runs[runs["practice"].between(10**power, 10 ** (power + 1), inclusive="left")]
        if len(inside):
            text = f"{inside['mastered'].sum()} of {len(inside)}"
            ax.text(10 ** (power + 0.5), 0.5, text, size=SMALL, ha="center", va="center")


def _scatter(ax: Axes, runs: pd.DataFrame, order: int, **look: Any) -> None:
    """Dots of runs, moved up and down by fixed amounts so that they do not cover each other."""
    moved = (np.arange(len(runs)) * 0.618 + order * 0.37) % 1.0 - 0.5
    heights = runs["mastered"] + 0.5 * moved
    ax.scatter(runs["practice"], heights, zorder=3 + order, clip_on=False, **look)
