"""Style of all figures: colours, page layout and byte-identical files.

Built-in samplers and estimators have their looks in `LOOKS`, based on Okabe and Ito's
colour-blind-safe colours; a user's own may bring one. Further variants, and samplers without a
look, take spare ones. Line styles and markers repeat the colours, for print in grey.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from analysis.tables.grid import Algorithm, estimator_label, number_text
from analysis.tables.results import Results
from magellan.competence import ESTIMATORS
from magellan.core.files import write_atomically
from magellan.core.registry import Look, Registry
from magellan.samplers import SAMPLERS
from magellan.worlds import Categories

NameT = TypeVar("NameT")


@dataclass(frozen=True)
class LineStyle:
    """Label and look of a line, the same in every figure of an experiment."""

    label: str
    color: str
    dash: Any  # a matplotlib line style
    marker: str


LOOKS: Mapping[str, Mapping[str, Look]] = {
    "sampler": {
        "random": Look("#000000", (0, (1, 1.3)), "D"),
        "online": Look("#009E73", (0, (5, 1.5, 1, 1.5)), "^"),
        "ek_online": Look("#0072B2", (0, (5, 1.5)), "s"),
        "ek_eval": Look("#56B4E9", (0, (2, 1)), "X"),
        "learnability": Look("#B58900", (0, (8, 2)), "x"),
        "magellan": Look("#D55E00", "-", "o"),
        "scripted": Look("#666666", (0, (3, 1, 1, 1)), "P"),
        "plr": Look("#F4A582", (0, (9, 1)), "1"),
        "procurl": Look("#C51B7D", (0, (6, 1, 2, 1)), "2"),
        "mopps": Look("#4D9221", (0, (1, 2)), "3"),
        "pcl": Look("#5E4FA2", (0, (4, 3)), "4"),
        "fast_slow": Look("#BF812D", (0, (8, 1, 1, 1)), "+"),
        "greso": Look("#35978F", (0, (2, 3)), "|"),
        "pools": Look("#DE77AE", (0, (5, 1, 1, 1, 1, 1)), "_"),
        "vds": Look("#8073AC", (0, (3, 1)), "."),
        "alp_gmm": Look("#01665E", (0, (12, 2)), "$a$"),
        "tscl": Look("#B2182B", (0, (6, 2, 1, 2)), "$t$"),
        "sec": Look("#2166AC", (0, (4, 1)), "$s$"),
        "dump": Look("#762A83", (0, (2, 2)), "$d$"),
        "e2h": Look("#1B7837", (0, (10, 3)), "$e$"),
        "adarft": Look("#80CDC1", (0, (7, 2, 1, 2)), "$r$"),
        "regions": Look("#FDAE61", (0, (14, 1)), "$g$"),
        "frontier": Look("#E7298A", (0, (16, 2)), "$f$"),
        "goldilocks": Look("#E6AB02", (0, (9, 3)), "$o$"),
        "informative": Look("#A6761D", (0, (3, 2, 1, 2)), "$i$"),
        "dps": Look("#1F78B4", (0, (11, 1, 1, 1)), "$p$"),
        "bots": Look("#33A02C", (0, (5, 3)), "$b$"),
        "insight": Look("#FB9A99", (0, (13, 3)), "$n$"),
        "cdas": Look("#B15928", (0, (4, 2, 2, 2)), "$c$"),
        "experimenter": Look("#4A1486", (0, (15, 3)), "$x$"),
        "experimenter_goals": Look("#9E9AC8", (0, (12, 1, 2, 1)), "$y$"),
        "proposer": Look("#DD3497", (0, (6, 2, 2, 2)), "$q$"),
    },
    "estimator": {
        "per_goal": Look("#009E73", "-", "^"),
        "expert_buckets": Look("#0072B2", "-", "s"),
        "evaluated_goals": Look("#E69F00", "-", "P"),
        "evaluated_buckets": Look("#56B4E9", "-", "X"),
        "learned": Look("#D55E00", "-", "o"),
        "ensemble": Look("#8073AC", "-", "."),
    },
}
"""Looks of the built-in samplers and estimators."""
# No built-in sampler or estimator has one of these colours, markers or line styles.
SPARE_LOOKS = (
    Look("#CC79A7", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Look("#7A4B1F", (0, (5, 2)), "h"),
    Look("#8DA300", (0, (4, 1, 1, 1)), "<"),
    Look("#6A3D9A", (0, (7, 1.5, 2, 1.5)), ">"),
    Look("#A50026", (0, (3, 2.5)), "*"),
    Look("#00A6A6", (0, (10, 2, 2, 2, 2, 2)), "p"),
    Look("#8C8C8C", (0, (1, 3)), "d"),
    Look("#E78AC3", (0, (6, 3)), "8"),
    Look("#1B2A6B", (0, (2, 1, 6, 1)), "H"),
)

# Of categories whose world names no colour, Okabe and Ito's; of impossible ones.
CATEGORY_COLORS = ("#56B4E9", "#F0E442", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00")
INFEASIBLE = "#BBBBBB"
BLACK, WHITE, EDGE, GREY, PALE_GREY = "#000000", "#FFFFFF", "#333333", "#555555", "#B5B5B5"
SHADE = "#F1EDE2"
"""Of what is practised, behind curves."""
COMPETENCE = matplotlib.colormaps["Greens"]
KINDS = tuple(matplotlib.colormaps["tab20"].colors)
"""Of kinds of goals within categories."""
# Names of intervals in footnotes.
PERCENTILE = "percentile bootstrap"
STUDENTISED = "studentised bootstrap"
# Seeds from which bootstrap intervals have about their nominal coverage (docs/statistics.md).
SEEDS_FOR_INTERVAL = 8

MATPLOTLIB_SETTINGS: dict[Any, Any] = {
    # A user's own matplotlibrc changes nothing: all it may set has matplotlib's default.
    **{key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"},
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
LEGEND_ROW_INCHES = 0.19
FOOTER_INCHES = 0.36
FOOTER_ROW_INCHES = 0.14
MARGIN_INCHES = 0.12


def algorithm_styles(labels: Mapping[Algorithm, str]) -> dict[Algorithm, LineStyle]:
    """Looks of algorithms, from their labels.

    The first variant of a sampler has the sampler's look; further variants, and samplers without a
    look, take spare ones in turn.
    """
    firsts = {name.sampler: name for name in reversed(list(labels))}.values()
    own = {name: _look(SAMPLERS, name.sampler) if name in firsts else None for name in labels}
    return _styles(labels, own)


def styles_of(results: Results) -> dict[Algorithm, LineStyle]:
    """Looks of all algorithms of an experiment, the same in each of its figures."""
    return algorithm_styles(results.figure_labels)


def category_colors(categories: Categories) -> dict[str, str]:
    """Colours of categories by name; those without their own take spare ones in turn."""
    used = {category.color for category in categories}
    unused = [color for color in CATEGORY_COLORS if color not in used] or CATEGORY_COLORS
    spare = itertools.cycle(unused)
    return {
        category.name: category.color or (next(spare) if category.feasible else INFEASIBLE)
        for category in categories
    }


def estimator_styles(estimators: Sequence[str]) -> dict[str, LineStyle]:
    """Looks of estimators; those without one take spare ones in turn."""
    labels = {name: estimator_label(name) for name in estimators}
    return _styles(labels, {name: _look(ESTIMATORS, name) for name in estimators})


def _look(registry: Registry[Any], name: str) -> Look | None:
    look: Look | None = LOOKS[registry.kind].get(name)
    return registry[name].look if look is None and name in registry else look


def _styles(
    labels: Mapping[NameT, str], own: Mapping[NameT, Look | None]
) -> dict[NameT, LineStyle]:
    """Their own looks, or spare ones; in a second round of these, markers are shifted."""
    styles, count, used = {}, len(SPARE_LOOKS), 0
    for name, look in own.items():
        if look is None:
            spare = SPARE_LOOKS[used % count]
            marker = SPARE_LOOKS[(used % count + used // count) % count].marker
            look, used = Look(spare.color, spare.dash, marker), used + 1
        styles[name] = LineStyle(labels[name], **vars(look))
    return styles


def page(
    title: str,
    subtitle: str,
    handles: Sequence[Artist],
    rows: Sequence[str],
    columns: Sequence[str],
    size: tuple[float, float],
    xlabel: str = "",
    note: str = "",
    share: bool = True,
    sharey: bool = True,
) -> tuple[Figure, NDArray[Any]]:
    """A figure with a header (title, subtitle, legend) above a grid of axes.

    Args:
        title: title of the figure.
        subtitle: goal space, seeds and meaning of the marks.
        handles: entries of the legend.
        rows, columns: y label of each row, title of each column.
        size: width and height in inches, with one row of legend and of footnote; the height grows
            with further rows.
        xlabel: x label of each column.
        note: footnote, such as the method of intervals.
        share, sharey: whether panels have one x axis, and also one y axis.

    Returns:
        The figure and its axes, (rows, columns).
    """
    width, height = size
    legend_columns = _legend_columns(handles, width)
    extra = (-(-len(handles) // legend_columns) - 1) * LEGEND_ROW_INCHES
    below = FOOTER_INCHES + note.count("\n") * FOOTER_ROW_INCHES
    height += extra + below - FOOTER_INCHES
    figure = canvas(width, height)
    bottom, top = below / height, 1.0 - (HEADER_INCHES + extra) / height
    figure.set_layout_engine(
        "constrained", rect=(0.01, bottom, 0.975, top - bottom), w_pad=0.08, h_pad=0.06
    )
    left = MARGIN_INCHES / width
    figure.text(left, 1 - 0.14 / height, title, size=13, weight="bold", va="top")
    figure.text(left, 1 - 0.41 / height, subtitle, size=9, color=GREY, va="top")
    figure.text(left, 0.1 / height, note, size=7.5, color=GREY, va="bottom")
    _legend(figure, handles, legend_columns)
    sharing = {"sharex": share, "sharey": share and sharey}
    axes = figure.subplots(len(rows), len(columns), squeeze=False, **sharing)
    for ax, label in zip(axes[:, 0], rows, strict=True):
        ax.set_ylabel(label)
    for ax, label in zip(axes[0], columns, strict=True):
        ax.set_title(label)
    for ax in axes[-1]:
        ax.set_xlabel(xlabel)
    return figure, axes


def canvas(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, which can measure its texts."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _legend(figure: Figure, handles: Sequence[Artist], columns: int) -> Legend:
    width, height = figure.get_size_inches()
    return figure.legend(
        handles=handles,
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=(MARGIN_INCHES / width, 1 - 0.62 / height),
        borderaxespad=0.0,
        borderpad=0.0,
        labelspacing=0.35,
        columnspacing=1.6,
        handlelength=3.4,
    )


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    """Largest number of columns of a legend within `width` inches."""
    for columns in range(len(handles), 1, -1):
        figure = canvas(width, 1.0)
        box = _legend(figure, handles, columns).get_window_extent()
        if box.x1 <= figure.bbox.x1 - MARGIN_INCHES * figure.dpi:
            return columns
    return 1


def algorithm_handles(
    results: Results, goal_space: str, algorithms: Sequence[Algorithm] | None = None
) -> list[Artist]:
    """Legend entries of algorithms (default: all of a goal space)."""
    styles = styles_of(results)
    return [
        line_handle(styles[algorithm], label=seeds_label(results, goal_space, algorithm))
        for algorithm in algorithms or results.algorithms_in(goal_space)
    ]


def line_handle(style: LineStyle, line: bool = True, **changes: Any) -> Line2D:
    """Legend entry of a line."""
    values = {
        "color": style.color,
        "linestyle": style.dash if line else "none",
        "marker": style.marker,
        "markersize": 4.5 if line else 6,
        "linewidth": 1.8,
        "label": style.label,
    }
    return Line2D([], [], **(values | changes))


def seeds_label(results: Results, goal_space: str, algorithm: Algorithm) -> str:
    """Label of an algorithm, with its number of seeds if algorithms differ in it."""
    label = results.figure_labels[algorithm]
    if len(set(results.seed_counts(goal_space))) == 1:
        return label
    return f"{label}, n = {len(results.seeds_of(algorithm, goal_space))}"


def interval_bar(ax: Axes, low: float, high: float, y: float, color: str) -> None:
    """A horizontal line with ticks at the bounds; invisible if they are NaN."""
    # Ticks are taller than the mark of the estimate, so that short intervals remain visible.
    ticks = {"marker": "|", "markersize": 12, "markeredgewidth": 1.3}
    ax.plot([low, high], [y, y], color=color, lw=1.6, solid_capstyle="butt", **ticks)


def describe(
    results: Results, goal_space: str, algorithms: Sequence[Algorithm] | None = None
) -> str:
    """Beginning of every subtitle: goal space and number of seeds (of `algorithms`, if given)."""
    seeds = results.seed_counts(goal_space, algorithms)
    plural = "s" if max(seeds) != 1 else ""
    variants = {algorithm.variant for algorithm in results.algorithms_in(goal_space)}
    unit = "sampler" if len(variants) < 2 else "variant"
    return f"Goal space {goal_space}, n = {number_text(seeds)} seed{plural} per {unit}"


def interval_text(results: Results, goal_space: str, method: str = PERCENTILE) -> str:
    """Description of the intervals for footnotes."""
    settings = results.experiment["analysis"]
    seeds = results.seed_counts(goal_space)
    if max(seeds) == 1:
        return "No intervals: a single seed says nothing about the spread between runs."
    text = (
        f"Intervals: {100 * settings['confidence']:g}%, {method}, resampling whole runs "
        f"(n = {number_text(seeds)}), {settings['bootstrap_repetitions']:,} resamples."
    )
    if min(seeds) == 1:
        return f"{text} None for a single seed."
    return f"{text} Crude: few seeds." if min(seeds) < SEEDS_FOR_INTERVAL else text


def seed_lines(
    results: Results, goal_space: str, several: str, algorithms: Sequence[Algorithm] | None = None
) -> str:
    """Description of the lines of a panel: `several`, or of a single seed."""
    seeds = results.seed_counts(goal_space, algorithms)
    return several if max(seeds) > 1 else "line: the only seed"


def mean_line(ax: Axes, points: Any, values: Any, look: LineStyle, zorder: int = 3) -> None:
    """The thick line of an algorithm with markers: (points,)."""
    spacing = marker_spacing(len(values))
    ax.plot(points, values, **line_options(look), markevery=spacing, zorder=zorder)


def step_line(ax: Axes, points: Any, values: Any, look: LineStyle, **changes: Any) -> None:
    """The same as a step line; changes: options of `Axes.step`."""
    ax.step(points, values, **(line_options(look) | changes))


def line_options(look: LineStyle) -> dict[str, Any]:
    """Options of `Axes.plot` for a thick line with markers."""
    options = {"color": look.color, "linestyle": look.dash, "marker": look.marker}
    return options | {"linewidth": 1.8, "markersize": 4, "clip_on": False}


def training_axis(axes: Iterable[Axes], last: float) -> None:
    """Training length on the x axis from 0 to `last`, in thousands if numbers are long."""
    for ax in axes:
        ax.set_xlim(0, last)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 4, 5, 10]))
        if last >= 5_000:
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x else "0"))


def fraction_axis(axes: Iterable[Axes]) -> None:
    """A rate on the y axis: 0 to 1, with a margin for lines on the border."""
    for ax in axes:
        ax.set_ylim(-0.03, 1.03)
        ax.set_yticks(np.linspace(0.0, 1.0, 5))


def draw_frozen(draw: Callable[..., Figure], *values: Any) -> Figure:
    """Draw a figure with the common settings and freeze its layout."""
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = draw(*values)
        freeze_layout(figure)
    return figure


def freeze_layout(figure: Figure) -> None:
    """Lay the axes out once and fix their rounded positions.

    The layout solver iterates over sets, so its result differs in the last bits between processes,
    which would change the bytes of a PDF.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position([round(float(edge), 4) for edge in ax.get_position().bounds])


def marker_spacing(points: int) -> int:
    """Number of points per marker, for at most nine markers."""
    return max(1, -(-points // 9))


@matplotlib.rc_context(MATPLOTLIB_SETTINGS)  # ticks are chosen when read, by their font's size
def fingerprint(figure: Figure) -> str:
    """SHA-256 of a figure's content: texts, positions, data and looks of its marks.

    Numbers are rounded, so that it is the same on every machine, although pixels may differ.
    """
    digest = hashlib.sha256(_rounded(figure.get_size_inches(), 2))
    for ax in figure.axes:
        digest.update(_rounded(ax.get_position().bounds, 2))
        digest.update(_rounded((*ax.get_xlim(), *ax.get_ylim()), 3))
        digest.update(f"{ax.get_visible()} {ax.get_xscale()} {ax.get_yscale()}".encode())
    for text in figure.findobj(Text):
        digest.update(text.get_text().encode())
    for line in figure.findobj(Line2D):
        look = line.get_color(), line.get_linestyle(), line.get_marker(), line.get_linewidth()
        digest.update(repr((*look, line.get_alpha())).encode())
        digest.update(_rounded(line.get_xydata(), 3))
    for shapes in figure.findobj(Collection):
        digest.update(_rounded(shapes.get_facecolor(), 3))
        for path in shapes.get_paths():
            digest.update(_rounded(path.vertices, 3))
        digest.update(_rounded(shapes.get_offsets(), 3))
    return digest.hexdigest()


def _rounded(numbers: Any, digits: int) -> bytes:
    """Numbers with about `digits` significant digits, as bytes; limits are far from round ones."""
    values = np.ma.filled(np.ma.asarray(numbers, dtype=np.float64), np.nan).ravel()
    size = 10.0 ** np.floor(np.log10(np.maximum(np.abs(values), 1e-3)) + 0.13)
    return repr(np.floor(values / size * 10**digits + 0.2718).tolist()).encode()


def fingerprint_of(path: Path) -> str | None:
    """The fingerprint in a PNG of `save`; None if it has none."""
    match = re.search(rb"tEXtComment\0([0-9a-f]{64})", path.read_bytes())
    return None if match is None else match[1].decode()


def save(figure: Figure, stem: Path, tight: bool = False) -> tuple[Path, Path]:
    """Write STEM.png (150 dpi) and STEM.pdf, reproducibly: without dates or versions.

    The PNG contains the figure's fingerprint.

    tight: crop to the drawing, for a figure that was not laid out by `page`.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = (stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf"))
    box = {"bbox_inches": "tight"} if tight else {}
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        png, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=150, **box)
        dates = {"CreationDate": None, "Producer": None, "Creator": None}
        figure.savefig(pdf, format="pdf", metadata=dates, **box)
        note = PngInfo()
        note.add_text("Comment", fingerprint(figure))
    small = io.BytesIO()
    with Image.open(png) as image:  # 256 colours take a third of the bytes
        image.convert("RGB").quantize(256).save(small, "png", optimize=True, pnginfo=note)
    write_atomically(paths[0], small.getvalue())
    write_atomically(paths[1], pdf.getvalue())
    return paths
