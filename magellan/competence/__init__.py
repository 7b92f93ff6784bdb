"""Competence estimators: they predict the agent's probability of success on each goal.

To add one, write a file with a registered builder and list it under `modules` of an experiment, or
import it below.
"""

from __future__ import annotations

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.registry import (
    ESTIMATORS,
    EstimatorParts,
    EstimatorSpec,
    make_estimator,
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


__all__ = [
    "ESTIMATORS",
    "CompetenceEstimator",
    "EstimatorParts",
    "EstimatorSpec",
    "Outcomes",
    "make_estimator",
    "register_estimator",
]
