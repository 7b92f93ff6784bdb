"""Registries of statistics and figures: built in, and a user's own (`magellan.config.modules`).

Imports neither pandas nor matplotlib: the workflow reads the registries at every start.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.tables.grid import Algorithm
from magellan.core.errors import InputError, shown
from magellan.core.registry import Registry, calling_file, is_built_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.tables.results import Results

Algorithms = Collection[Algorithm]
Compute = Callable[["Results"], "pd.DataFrame"]
"""(combined tables) -> tidy table."""
Draw = Callable[["Results", Mapping[str, "pd.DataFrame"], str], "Figure"]
"""(combined tables, statistics by name, goal space) -> figure."""
Needs = Callable[[Algorithms, Algorithms, Algorithm], str]
"""(algorithms, those with predictions, reference) -> what is lacking; empty if nothing is."""

WORDS = re.compile(r"[A-Za-z0-9 .,()/_-]{1,40}")
ResultT = TypeVar("ResultT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def nothing(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    """The default `lacks` of a figure: it needs nothing."""
    return ""


@dataclass(frozen=True)
class StatisticSpec:
    """A table of statistics, NAME.csv; `source`: file that registers it."""

    name: str
    compute: Compute
    source: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """A figure drawn for each goal space, NAME.png and NAME.pdf."""

    name: str
    draw: Draw
    label: str  # in the report's sidebar
    section: str  # of the report
    statistics: tuple[str, ...] = ()  # tables of statistics that it reads
    lacks: Needs = nothing  # returns what a goal space lacks for it
    caption: str = ""  # plain text; those of built-in figures are in report/captions.yaml
    source: str = ""  # file that registers it
    phased: bool = False  # whether it needs runs of several phases


STATISTICS: Registry[StatisticSpec] = Registry("statistic")
FIGURES: Registry[FigureSpec] = Registry("figure")


def register_statistic(name: str) -> Callable[[FunctionT], FunctionT]:
    """Decorate a function (combined tables) -> tidy table, written to `statistics/NAME.csv`."""

    def add(compute: FunctionT) -> FunctionT:
        _check_takes(compute, ("results",), f"statistic: {shown(name)}")
        STATISTICS.add(StatisticSpec(name, compute, calling_file()))
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
    """Decorate a function (combined tables, statistics, goal space) -> matplotlib figure.

    Args: see `FigureSpec`; `caption` defaults to the function's docstring.
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
        if isinstance(statistics, str):
            raise InputError(
                f"{where}: statistics {shown(statistics)} is not allowed; allowed: names in a tuple"
            )
        _check_takes(lacks, ("algorithms", "predicting", "reference"), f"{where}: lacks")
        doc = (inspect.getdoc(draw) or "") if caption is None else caption
        texts = label, section, tuple(statistics), lacks, doc
        FIGURES.add(FigureSpec(name, draw, *texts, calling_file(), phased))
        return draw

    return add


def statistics_of(figure: FigureSpec) -> tuple[str, ...]:
    """Names of the statistics that a figure reads.

    Raises:
        InputError: no such statistic; importing `analysis.statistics.summaries` registers the
            built-in ones.
    """
    for name in figure.statistics:
        STATISTICS.find(name, f"{_error_source(figure)}figure {figure.name}: statistics")
    return figure.statistics


def call_checked(
    spec: StatisticSpec | FigureSpec,
    function: Callable[..., ResultT],
    *values: Any,
    kind: type[Any],
) -> ResultT:
    """Call a function of a statistic or figure; errors of built-in ones propagate: they are bugs.

    kind: type that it must return.

    Raises:
        InputError: a user's function raised an error, or returned another type.
    """
    if is_built_in(spec):
        return function(*values)
    try:
        result = function(*values)
    except (Exception, SystemExit) as error:  # whatever a user's function raises
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == spec.source]
        where = f"line {lines[-1]}: " if lines else ""
        reason = where + " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise refuse(spec, f"failed ({reason})") from error
    if not isinstance(result, kind):
        allowed = f"{kind.__module__}.{kind.__name__}"
        raise refuse(spec, f"gave {shown(result)}; allowed: {allowed}")
    return result


def refuse(spec: StatisticSpec | FigureSpec, why: str) -> InputError:
    """Error about the result of a user's function."""
    kind = "figure" if isinstance(spec, FigureSpec) else "statistic"
    return InputError(f"{_error_source(spec)}{kind} {spec.name} {why}")


def _error_source(spec: StatisticSpec | FigureSpec) -> str:
    return "" if is_built_in(spec) else f"modules: {shown(spec.source)}: "


def _check_takes(function: Any, names: tuple[str, ...], where: str) -> None:
    try:
        inspect.signature(function).bind(*names)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: {shown(function)} is not allowed; allowed: a function of {', '.join(names)}"
        ) from None
