"""How all figures look: colours, names, page layout and files with the same bytes every time.

Colours are Okabe and Ito's, safe for colour-blind readers; samplers and categories share none of
them, and a line style and a marker always say the same as the colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from analysis.coverage import number_text
from analysis.tables import Results

AxesGrid = NDArray[Any]


@dataclass(frozen=True)
class LineStyle:
    """Name and look of a sampler; the same in every figure."""

    label: str
    color: str
    dash: Any  # a matplotlib line style
    marker: str


SAMPLER_STYLES = {
    "random": LineStyle("Random", "#000000", (0, (1, 1.3)), "D"),
    "online": LineStyle("Online-ALP", "#009E73", (0, (5, 1.5, 1, 1.5)), "^"),
    "ek_online": LineStyle("EK-Online-ALP", "#0072B2", (0, (5, 1.5)), "s"),
    "magellan": LineStyle("MAGELLAN", "#D55E00", "-", "o"),
}
SPARE_STYLES = (
    LineStyle("", "#CC79A7", (0, (3, 1, 1, 1, 1, 1)), "v"),
    LineStyle("", "#E69F00", (0, (8, 2)), "P"),
    LineStyle("", "#56B4E9", (0, (2, 1)), "X"),
)

CATEGORY_LABELS = {
    "impossible": "Impossible",
    "grasp": "Grasp",
    "grow_plant": "Grow plant",
    "grow_herbivore": "Grow herbivore",
    "grow_carnivore": "Grow carnivore",
}
CATEGORY_COLORS = {
    "impossible": "#BBBBBB",
    "grasp": "#56B4E9",
    "grow_plant": "#F0E442",
    "grow_herbivore": "#E69F00",
    "grow_carnivore": "#CC79A7",
}
SPLIT_LABELS = {"train": "Training goals", "unseen": "Unseen goals"}
SCORE_LABELS = {"final": "Success at the end", "area": "Mean success over training"}

GREY = "#555555"
# From this many seeds on a bootstrap band says more than single lines would.
SEEDS_FOR_BAND = 5

MATPLOTLIB_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so text has the same size everywhere
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "pdf.fonttype": 42,
    "svg.hashsalt": "magellan",
}

HEADER_INCHES = 0.90
FOOTER_INCHES = 0.36
MARGIN_INCHES = 0.12


def sampler_style(sampler: str, samplers: Sequence[str]) -> LineStyle:
    """Look of a sampler; one that has no own style gets a spare one by its place among those."""
    if sampler in SAMPLER_STYLES:
        return SAMPLER_STYLES[sampler]
    unknown = sorted(set(samplers) - SAMPLER_STYLES.keys())
    spare = SPARE_STYLES[unknown.index(sampler) % len(SPARE_STYLES)]
    return LineStyle(sampler, spare.color, spare.dash, spare.marker)


def page(
    rows: int, columns: int, size: tuple[float, float], title: str, subtitle: str, **sharing: Any
) -> tuple[Figure, AxesGrid]:
    """A figure with a header (title, subtitle, room for a legend) above a grid of axes.

    Args:
        rows, columns: shape of the grid.
        size: width and height in inches, header and footer included.
        title: the question that the figure answers.
        subtitle: goal space, seeds and what the marks are.
        sharing: `sharex` and `sharey` of the grid.

    Returns:
        The figure and its axes, (rows, columns).
    """
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    width, height = size
    bottom, top = FOOTER_INCHES / height, 1.0 - HEADER_INCHES / height
    figure.set_layout_engine(
        "constrained", rect=(0.01, bottom, 0.975, top - bottom), w_pad=0.08, h_pad=0.06
    )
    left = MARGIN_INCHES / width
    figure.text(left, 1 - 0.14 / height, title, size=13, weight="bold", va="top")
    figure.text(left, 1 - 0.41 / height, subtitle, size=9, color=GREY, va="top")
    axes = figure.subplots(rows, columns, squeeze=False, **sharing)
    return figure, axes


def footnote(figure: Figure, text: str) -> None:
    """One line below the axes: how intervals were made, and what a reader might miss."""
    width, height = figure.get_size_inches()
    figure.text(MARGIN_INCHES / width, 0.1 / height, text, size=7.5, color=GREY, va="bottom")


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """The legend, in one row between the subtitle and the axes."""
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles,
        ncols=len(handles),
        loc="upper left",
        bbox_to_anchor=(MARGIN_INCHES / width, 1 - 0.62 / height),
        borderaxespad=0.0,
        borderpad=0.0,
        columnspacing=1.6,
        handlelength=2.8,
    )


def sampler_handles(results: Results, goal_space: str, lines: bool = True) -> list[Artist]:
    """Legend entries of a goal space's samplers: line with marker, or marker alone."""
    samplers = results.samplers_in(goal_space)
    styles = [sampler_style(sampler, results.samplers) for sampler in samplers]
    labels = [sampler_label(results, goal_space, sampler) for sampler in samplers]
    return [
        Line2D(
            [],
            [],
            color=style.color,
            linestyle=style.dash if lines else "none",
            marker=style.marker,
            markersize=4.5 if lines else 6,
            linewidth=1.8,
            label=label,
        )
        for style, label in zip(styles, labels, strict=True)
    ]


def sampler_label(results: Results, goal_space: str, sampler: str) -> str:
    """Name of a sampler; with its number of seeds where samplers differ in that."""
    label = sampler_style(sampler, results.samplers).label
    if len(set(results.seed_counts(goal_space))) == 1:
        return label
    return f"{label}, n = {len(results.seeds_of(sampler, goal_space))}"


def interval_bar(ax: Axes, low: float, high: float, place: float, color: str) -> None:
    """A horizontal line with ticks at the bounds; nothing where there are none (NaN)."""
    # Ticks taller than the mark of the estimate, so that a short interval still shows.
    ends = {"marker": "|", "markersize": 12, "markeredgewidth": 1.3}
    ax.plot([low, high], [place, place], color=color, lw=1.6, solid_capstyle="butt", **ends)


def _seed_counts(results: Results, goal_space: str, sampler: str | None) -> tuple[int, ...]:
    if sampler is None:
        return results.seed_counts(goal_space)
    return (len(results.seeds_of(sampler, goal_space)),)


def describe(results: Results, goal_space: str, sampler: str | None = None) -> str:
    """Beginning of every subtitle: goal space and number of seeds, of one sampler if given."""
    seeds = _seed_counts(results, goal_space, sampler)
    plural = "s" if max(seeds) != 1 else ""
    return f"Goal space {goal_space}, n = {number_text(seeds)} seed{plural} per sampler"


def interval_text(results: Results, goal_space: str) -> str:
    """The interval method in words, for footnotes."""
    settings = results.experiment["analysis"]
    seeds = results.seed_counts(goal_space)
    if max(seeds) == 1:
        return "No intervals: a single seed says nothing about the spread between runs."
    text = (
        f"Intervals: {settings['confidence']:.0%} percentile, stratified bootstrap over "
        f"n = {number_text(seeds)} seeds within each category, "
        f"{settings['bootstrap_repetitions']:,} resamples."
    )
    if min(seeds) == 1:
        return f"{text} None for a single seed."
    return f"{text} Crude: few seeds." if min(seeds) < SEEDS_FOR_BAND else text


def seed_lines(results: Results, goal_space: str, several: str, sampler: str | None = None) -> str:
    """What the lines of a panel are: `several`, or the only seed."""
    seeds = _seed_counts(results, goal_space, sampler)
    return several if max(seeds) > 1 else "line: the only seed"


def episode_axis(axes: Iterable[Axes], last: float) -> None:
    """Episodes on the x axis from 0 to `last`, in thousands where numbers are long."""
    for ax in axes:
        ax.set_xlim(0, last)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 4, 5, 10]))
        if last >= 5_000:
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x else "0"))


def fraction_axis(axes: Iterable[Axes]) -> None:
    """A rate on the y axis: 0 to 1, with room for lines that lie on the border."""
    for ax in axes:
        ax.set_ylim(-0.03, 1.03)
        ax.set_yticks(np.linspace(0.0, 1.0, 5))


def settle(figure: Figure) -> None:
    """Lay the axes out once and keep them there, rounded.

    The layout solver's result differs in the last bits from one process to the next (it walks
    over sets), which would be enough to give a PDF other bytes.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position([round(float(edge), 4) for edge in ax.get_position().bounds])


def marker_spacing(points: int) -> int:
    """Every how many points a marker stands, so that at most nine are drawn."""
    return max(1, -(-points // 9))


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write STEM.png (150 dpi) and STEM.pdf without dates or versions: same input, same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = (stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf"))
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        metadata = {"CreationDate": None, "Producer": None, "Creator": None}
        figure.savefig(paths[1], metadata=metadata)
    return paths
