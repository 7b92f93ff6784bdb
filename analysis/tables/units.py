"""What the length of training is counted in: episodes, environment steps or policy updates.

It is what ends the runs of an experiment (`budget`), and the x axis of everything about training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from magellan.config import UNIT_COLUMNS, Unit

UNIT_LABELS: Mapping[Unit, str] = {
    "episodes": "training episodes",
    "steps": "environment steps",
    "updates": "policy updates",
}
"""On axes and in captions."""

UNIT_WORDS: Mapping[Unit, str] = {**UNIT_LABELS, "episodes": "episodes"}
"""In a sentence."""


def unit_of(config: Mapping[str, Any]) -> Unit:
    """Unit of a run, from its configuration in its manifest."""
    budget = config.get("budget")
    given = budget if isinstance(budget, Mapping) else {}
    if given.get("steps"):
        return "steps"
    return "updates" if given.get("updates") else "episodes"


def unit_of_experiment(experiment: Mapping[str, Any]) -> Unit:
    """Unit of all runs of an experiment, from the keys that it gives them."""
    layers: Iterable[Mapping[str, Any]] = (
        experiment.get("overrides") or {},
        *(experiment.get("variants") or {}).values(),
    )
    return next((unit for unit in map(unit_of, layers) if unit != "episodes"), "episodes")


def in_unit(columns: tuple[str, ...], unit: Unit) -> tuple[str, ...]:
    """Key columns of a table of evaluations, with the column of the unit for that of episodes."""
    return tuple(UNIT_COLUMNS[unit] if column == "episode" else column for column in columns)
