"""One figure for each question; every module has `draw(results, statistics, goal_space)`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.grid import Algorithm, reference_algorithm
from magellan.errors import InputError
from magellan.samplers import SAMPLERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.results import Results

Algorithms = Collection[Algorithm]
Needs = Callable[[Algorithms, Algorithms, Algorithm], str]
"""(algorithms, those with predictions, reference) to what is lacking; empty if nothing is."""


def _nothing(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    return ""


def _a_comparison(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    if reference not in algorithms:
        return f"runs of the reference, {reference.sampler}/{reference.variant}"
    return "" if len(algorithms) > 1 else "two algorithms or more (samplers or variants)"


def _predictions(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    if any(algorithm.sampler == reference.sampler for algorithm in predicting):
        return ""
    return f"runs of the reference's sampler, {reference.sampler}, with a competence estimator"


@dataclass(frozen=True)
class FigureSpec:
    """What a figure is called in the report, where it stands there, and what it needs.

    Attributes:
        label: name in the report's sidebar.
        section: heading of the report under which it stands.
        statistics: tables of `analysis.summaries` that it reads.
        lacks: says what a goal space lacks for it.
    """

    label: str
    section: str
    statistics: tuple[str, ...]
    lacks: Needs = _nothing


FIGURES: Mapping[str, FigureSpec] = {
    "success_by_category": FigureSpec("Success per category", "1. Success", ("success",)),
    "sample_efficiency": FigureSpec("Sample efficiency", "1. Success", ("sample_efficiency",)),
    "mastery": FigureSpec("Time to mastery", "1. Success", ()),
    "aggregates": FigureSpec("IQM and mean", "2. Comparison", ("aggregates",)),
    "improvement": FigureSpec(
        "Probability of improvement", "2. Comparison", ("improvement", "comparison"), _a_comparison
    ),
    "profiles": FigureSpec("Performance profiles", "2. Comparison", ("profiles",)),
    "practice": FigureSpec("Goals practised", "3. Inside the samplers", ()),
    "calibration": FigureSpec("Predicted competence", "3. Inside the samplers", (), _predictions),
}


def applicable(algorithms: Iterable[Algorithm], experiment: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the figures that a goal space has, before any run is made.

    Args:
        algorithms: those with runs in the goal space.
        experiment: configuration of the grid.
    """
    present = list(dict.fromkeys(algorithms))
    predicting = [algorithm for algorithm in present if predicts(algorithm, experiment)]
    reference = reference_algorithm(experiment)
    return tuple(
        name for name, spec in FIGURES.items() if not spec.lacks(present, predicting, reference)
    )


def predicts(algorithm: Algorithm, experiment: Mapping[str, Any]) -> bool:
    """Whether runs of an algorithm have an estimator, as far as the experiment says it."""
    variant = (experiment.get("variants") or {}).get(algorithm.variant) or {}
    observers = variant.get("observers", (experiment.get("overrides") or {}).get("observers"))
    sampler = SAMPLERS.get(algorithm.sampler)
    return bool(observers) or (sampler is not None and sampler.estimator is not None)


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
        InputError: unknown figure or goal space, or the results lack what it needs.
    """
    if name not in FIGURES:
        raise InputError(f"figure: {name!r} is unknown; allowed: {', '.join(FIGURES)}")
    if goal_space not in results.goal_spaces:
        allowed = ", ".join(results.goal_spaces)
        raise InputError(f"goal space: {goal_space!r} is not in the tables; there are: {allowed}")
    there = results.algorithms_in(goal_space), results.predicting(goal_space), results.reference
    lacking = FIGURES[name].lacks(*there)
    if lacking:
        raise InputError(f"figure: {name} needs {lacking}")
    # Late, so that the workflow can read the list of figures without loading matplotlib.
    import matplotlib

    from analysis.figures import style

    module = importlib.import_module(f"analysis.figures.{name}")
    with matplotlib.rc_context(style.MATPLOTLIB_SETTINGS):
        figure = module.draw(results, statistics, goal_space)
        style.settle(figure)
    return figure
