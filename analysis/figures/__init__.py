"""Figures; those of the report are functions (results, statistics, goal_space) -> Figure.

A user's own file adds figures with `register_figure`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis.statistics.registry import (
    FIGURES,
    Algorithms,
    FigureSpec,
    Needs,
    call_checked,
    nothing,
    register_figure,
)
from analysis.tables.grid import Algorithm, exploiting, reference_algorithm
from magellan.core.errors import InputError
from magellan.samplers import SAMPLERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.tables.results import Results


def _lacks_comparison(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    if reference not in algorithms:
        return f"runs of the reference, {reference.sampler}/{reference.variant}"
    return "" if len(algorithms) > 1 else "two algorithms or more (samplers or variants)"


def _lacks_predictions(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    if any(algorithm.sampler == reference.sampler for algorithm in predicting):
        return ""
    return f"runs of the reference's sampler, {reference.sampler}, with a competence estimator"


def _lacks_choices(algorithms: Algorithms, predicting: Algorithms, reference: Algorithm) -> str:
    return "" if exploiting(algorithms) else "a sampler that chooses by what it estimates"


def _built_in(
    module: str,
    name: str,
    label: str,
    section: str,
    *statistics: str,
    lacks: Needs = nothing,
    phased: bool = False,
) -> None:
    """Register the function `name` of a module of this package, imported when it draws."""

    def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
        function = getattr(importlib.import_module(f"analysis.figures.{module}"), name)
        return function(results, statistics, goal_space)

    register_figure(name, label, section, statistics, lacks, phased=phased)(draw)


SUCCESS, COMPARISON, INSIDE = "1. Success", "2. Comparison", "3. Inside the samplers"
_built_in("overview", "overview", "Overview", SUCCESS)
_built_in("training", "success_by_category", "Success per category", SUCCESS)
_built_in("training", "phases", "Success over all phases", SUCCESS, phased=True)
_built_in("training", "sample_efficiency", "Sample efficiency", SUCCESS, "sample_efficiency")
_built_in("training", "mastery", "Time to mastery", SUCCESS)
_built_in("comparison", "aggregates", "Mean and IQM", COMPARISON, "aggregates", "scores")
_built_in(
    *("comparison", "improvement", "Probability of improvement", COMPARISON),
    *("improvement", "comparison"),
    lacks=_lacks_comparison,
)
_built_in("comparison", "profiles", "Performance profiles", COMPARISON, "profiles")
_built_in("training", "practice", "Goals practised", INSIDE)
_built_in("training", "exploitation", "Goals chosen", INSIDE, lacks=_lacks_choices)
_built_in("calibration", "calibration", "Predicted competence", INSIDE, lacks=_lacks_predictions)


def applicable(algorithms: Iterable[Algorithm], experiment: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the figures of a goal space with these algorithms, before any run is made."""
    present = list(dict.fromkeys(algorithms))
    predicting = [algorithm for algorithm in present if predicts(algorithm, experiment)]
    values = present, predicting, reference_algorithm(experiment)
    phased = has_phases(experiment)
    return tuple(n for n, spec in FIGURES.items() if not lacking(spec, *values, phased=phased))


def has_phases(experiment: Mapping[str, Any]) -> bool:
    """Whether an experiment has runs of several phases."""
    layers = experiment.get("overrides") or {}, *(experiment.get("variants") or {}).values()
    return any((layer or {}).get("phases") for layer in layers)


def lacking(spec: FigureSpec, *values: Any, phased: bool) -> str:
    """What a goal space lacks for a figure; empty if nothing.

    values: the goal space's algorithms, those with predictions, and the reference.
    """
    if spec.phased and not phased:
        return "runs of several phases"
    return call_checked(spec, spec.lacks, *values, kind=str)


def predicts(algorithm: Algorithm, experiment: Mapping[str, Any]) -> bool:
    """Whether runs of an algorithm have an estimator, as far as the configuration tells."""
    variant = (experiment.get("variants") or {}).get(algorithm.variant) or {}
    observers = variant.get("observers", (experiment.get("overrides") or {}).get("observers"))
    sampler = SAMPLERS.get(algorithm.sampler)
    return bool(observers) or (sampler is not None and sampler.estimator is not None)


def draw(
    name: str, results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str
) -> Figure:
    """Draw one figure for one goal space.

    statistics: the tables of `analysis.statistics.summaries`.

    Raises:
        InputError: unknown figure or goal space, or the results lack something it needs.
    """
    spec = FIGURES.find(name)
    if goal_space not in results.goal_spaces:
        allowed = ", ".join(results.goal_spaces)
        raise InputError(f"goal space: {goal_space!r} is not in the tables; there are: {allowed}")
    values = results.algorithms_in(goal_space), results.predicting(goal_space), results.reference
    if missing := lacking(spec, *values, phased=results.whole is not None):
        raise InputError(f"figure: {name} needs {missing}")
    # Imported late: the workflow reads the list of figures without loading matplotlib.
    import matplotlib
    from matplotlib.figure import Figure

    from analysis.figures import style

    with matplotlib.rc_context(style.MATPLOTLIB_SETTINGS):
        figure = call_checked(spec, spec.draw, results, statistics, goal_space, kind=Figure)
        call_checked(spec, style.freeze_layout, figure, kind=type(None))
    return figure
