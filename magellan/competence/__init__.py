"""Competence estimators: they predict the agent's probability of success on each goal.

To add one, write a file with a registered builder and list it under `modules` of an experiment, or
import it below.
"""

from __future__ import annotations

from typing import Any

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.registry import (
    ESTIMATORS,
    EstimatorParts,
    EstimatorSpec,
    register_estimator,
)

# Importing an estimator registers it; names are listed in this order.
from magellan.competence import (  # noqa: F401  # isort: skip
    windows,
    learned,
    evaluated,
    ensemble,
    learned_groups,
)


def make_estimator(name: str, parts: EstimatorParts, settings: Any = None) -> CompetenceEstimator:
    """Build the estimator `name`; `settings` None: its default constants.

    Raises:
        InputError: unknown estimator.
    """
    spec = ESTIMATORS.find(name)
    return spec.build(parts, spec.settings() if settings is None else settings)


__all__ = [
    "ESTIMATORS",
    "CompetenceEstimator",
    "EstimatorParts",
    "EstimatorSpec",
    "Outcomes",
    "make_estimator",
    "register_estimator",
]
