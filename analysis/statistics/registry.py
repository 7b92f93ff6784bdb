"""Statistics and figures by name: the package's, and a user's own (`magellan.config.modules`).

Neither pandas nor matplotlib is loaded here: the workflow reads the lists at each of its starts.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.tables.grid import Algorithm
from magellan.core.errors import InputError, shown
from magellan.core.registry import Registry, is_built_in, source_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.tables.results import Results

Algorithms = Collection[Algorithm]
Compute = Callable[["Results"], "pd.DataFrame"]
"""Combined tables to a tidy table."""
Draw = Callable[["Results", Mapping[str, "pd.DataFrame"], str], "Figure"]
"""(combined tables, statistics by name, goal space) to a figure."""
Needs = Callable[[Algorithms, Algorithms, Algorithm], str]
"""(algorithms, those with predictions, reference) to what is lacking; empty if nothing is."""

WORDS = re.compile(r"[A-Za-z0-9 .,()/_-]{1,40}")
ResultT = TypeVar("ResultT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def nothing(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    """What a figure lacks that every goal space has."""
    return ""


@dataclass(frozen=True)
class StatisticSpec:
    """A table of statistics.

    Attributes:
        name: of its file, without .csv.
        compute: its function.
        source: file that it comes from.
    """

    name: str
    compute: Compute
    source: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """A figure of each goal space.

    Attributes:
        name: of its files, without .png and .pdf.
        draw: its function.
        label: name in the report's sidebar.
        section: heading of the report under which it stands.
        statistics: names of the tables of statistics that it reads.
        lacks: says what a goal space lacks for it.
        caption: what the report says below it, plain text; the package's own have a file each in
            `workflow/report`.
        source: file that it comes from.
        phased: whether it is of runs with several phases only.
    """

    name: str
    draw: Draw
    label: str
    section: str
    statistics: tuple[str, ...] = ()
    lacks: Needs = nothing
    caption: str = ""
    source: str = ""
    phased: bool = False


STATISTICS: Registry[StatisticSpec] = Registry("statistic")
FIGURES: Registry[FigureSpec] = Registry("figure")


def register_statistic(name: str) -> Callable[[FunctionT], FunctionT]:
    """Decorator of a function (combined tables) -> tidy table: `statistics/NAME.csv`."""

    def add(compute: FunctionT) -> FunctionT:
        _check_takes(compute, ("results",), f"statistic: {shown(name)}")
        STATISTICS.add(StatisticSpec(name, compute, source_of(compute)))
        return compute

    return add


def register_figure(
    name: str,
    label: str,
    section: str,
    statistics: tuple[str, ...] = (),
    lacks: Needs = nothing,
    caption: str | None = None,
    phased: bool = False,
) -> Callable[[FunctionT], FunctionT]:
    """Decorator of a function (combined tables, statistics, goal space) -> matplotlib figure.

    Args: see `FigureSpec`; without a `caption` it is the function's docstring.
    """

    def add(draw: FunctionT) -> FunctionT:
        where = f"figure: {shown(name)}"
        _check_takes(draw, ("results", "statistics", "goal_space"), where)
        for key, text in (("label", label), ("section", section)):
            if not isinstance(text, str) or not WORDS.fullmatch(text):
                raise InputError(
                    f"{where}: {key} {shown(text)} is not allowed; allowed: up to 40 letters, "
                    "digits, spaces and .,()/_-"
                )
        if isinstance(statistics, str) or not all(isinstance(each, str) for each in statistics):
            raise InputError(
                f"{where}: statistics {shown(statistics)} is not allowed; allowed: names in a tuple"
            )
        _check_takes(lacks, ("algorithms", "predicting", "reference"), f"{where}: lacks")
        words = inspect.getdoc(draw) if caption is None else caption
        spec = FigureSpec(name, draw, label, section, tuple(statistics), lacks, words or "")
        FIGURES.add(replace(spec, source=source_of(draw), phased=phased))
        return draw

    return add


def statistics_of(figure: FigureSpec) -> tuple[str, ...]:
    """Names of the statistics that a figure reads.

    Raises:
        InputError: no such statistic; those of the package are known once
            `analysis.statistics.summaries` is imported.
    """
    for name in figure.statistics:
        STATISTICS.find(name, f"{_place(figure)}figure {figure.name}: statistics")
    return figure.statistics


def called(
    spec: StatisticSpec | FigureSpec,
    function: Callable[..., ResultT],
    *values: Any,
    kind: type[Any],
) -> ResultT:
    """What a function of a statistic or figure gives.

    Errors of the package's own functions pass: they are mistakes of this code.

    Args:
        spec: which one.
        function: one of its functions.
        values: its arguments.
        kind: what it must give.

    Raises:
        InputError: a user's function raised something, or gave something else.
    """
    if is_built_in(spec):
        return function(*values)
    try:
        result = function(*values)
    except Exception as error:  # whatever a user's function raises
        raise InputError(f"{_of(spec)} failed ({_reason(error, spec.source)})") from error
    if not isinstance(result, kind):
        raise InputError(
            f"{_of(spec)} gave {shown(result)}; allowed: {kind.__module__}.{kind.__name__}"
        )
    return result


def refuse(spec: StatisticSpec | FigureSpec, why: str) -> InputError:
    """Error about what a user's function gave."""
    return InputError(f"{_of(spec)} {why}")


def _of(spec: StatisticSpec | FigureSpec) -> str:
    kind = "figure" if isinstance(spec, FigureSpec) else "statistic"
    return f"{_place(spec)}{kind} {spec.name}"


def _place(spec: StatisticSpec | FigureSpec) -> str:
    """The user's file that an error is about."""
    return "" if is_built_in(spec) else f"modules: {shown(spec.source)}: "


def _reason(error: Exception, path: str) -> str:
    """An error in words, with the last line of the user's file on the way to it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    where = f"line {lines[-1]}: " if lines else ""
    return where + " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _check_takes(function: Any, names: tuple[str, ...], where: str) -> None:
    """Refuse what cannot be called with these arguments, before anything is trained."""
    try:
        inspect.signature(function).bind(*names)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: {shown(function)} is not allowed; allowed: a function of {', '.join(names)}"
        ) from None
