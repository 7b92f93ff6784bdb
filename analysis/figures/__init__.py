"""One figure for each question; every module has `draw(results, statistics, goal_space)`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magellan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.tables import Results


@dataclass(frozen=True)
class FigureSpec:
    """What a figure is called in the report, where it stands there, and what it needs.

    Attributes:
        label: name in the report's sidebar.
        section: heading of the report under which it stands.
        statistics: tables of `analysis.summaries` that it reads.
        needs: samplers without which there is nothing to draw.
        least_samplers: fewest samplers that make sense.
    """

    label: str
    section: str
    statistics: tuple[str, ...]
    needs: tuple[str, ...] = ()
    least_samplers: int = 1


FIGURES: Mapping[str, FigureSpec] = {
    "success_by_category": FigureSpec("Success per category", "1. Success", ("success",)),
    "sample_efficiency": FigureSpec("Sample efficiency", "1. Success", ("sample_efficiency",)),
    "aggregates": FigureSpec("IQM, mean, optimality gap", "2. Comparison", ("aggregates",)),
    "improvement": FigureSpec(
        "Probability of improvement", "2. Comparison", ("improvement",), ("magellan",), 2
    ),
    "profiles": FigureSpec("Performance profiles", "2. Comparison", ("profiles",)),
    "practice": FigureSpec("Goals practised", "3. Inside the samplers", ()),
    "calibration": FigureSpec("Predicted competence", "3. Inside the samplers", (), ("magellan",)),
}


def applicable(samplers: Iterable[str]) -> tuple[str, ...]:
    """Names of the figures that an experiment with these samplers has."""
    present = set(samplers)
    return tuple(
        name
        for name, spec in FIGURES.items()
        if present.issuperset(spec.needs) and len(present) >= spec.least_samplers
    )


def draw(
    name: str, results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """Draw one figure for one goal space.

    Args:
        name: a key of `FIGURES`.
        results: combined tables.
        statistics: the tables of `analysis.summaries`.
        goal_space: one of the results' goal spaces.

    Raises:
        InputError: unknown figure or goal space, or the results lack a sampler that it needs.
    """
    if name not in FIGURES:
        raise InputError(f"figure: {name!r} is unknown; allowed: {', '.join(FIGURES)}")
    if goal_space not in results.goal_spaces:
        allowed = ", ".join(results.goal_spaces)
        raise InputError(f"goal space: {goal_space!r} is not in the tables; there are: {allowed}")
    if name not in applicable(results.samplers_in(goal_space)):
        needed = ", ".join((*FIGURES[name].needs, f"{FIGURES[name].least_samplers} or more in all"))
        raise InputError(f"figure: {name} needs the samplers {needed}")
    # Late, so that the workflow can read the list of figures without loading matplotlib.
    import matplotlib

    from analysis.figures import style

    module = importlib.import_module(f"analysis.figures.{name}")
    with matplotlib.rc_context(style.MATPLOTLIB_SETTINGS):
        figure = module.draw(results, statistics, goal_space)
        style.settle(figure)
    return figure
