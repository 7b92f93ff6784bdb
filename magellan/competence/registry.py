"""Registry of competence estimators, and the parts they are built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.core.registry import BuilderT, Registry, Spec
from magellan.core.settings import NoSettings, Section

if TYPE_CHECKING:
    from magellan.backends import Backend
    from magellan.worlds import GoalSet


@dataclass(frozen=True)
class EstimatorParts:
    """Arguments of an estimator's builder, supplied by the run.

    Attributes:
        goals: the training goal space.
        stream: returns the run's random generator of this name; names never share one.
        seed: for initial values.
        backend: the language model and its tokenizer.
        scores_candidates: whether a sampler uses `candidates`; in a replay none does, and their
            competence need not be kept.
    """

    goals: GoalSet
    stream: Callable[[str], np.random.Generator]
    seed: int = 0
    backend: Backend | None = None
    scores_candidates: bool = True


@dataclass(frozen=True, kw_only=True)
class EstimatorSpec(Spec):
    """An estimator that a configuration can name: in `observers`, or as a sampler's `estimator`.

    `build` is a function (parts, settings of the estimator's own section) to the estimator at the
    start of a run, or its class.

    Attributes:
        needs_features: whether it needs a language model.
        arms: what its arms are, for the analysis of runs; empty: neither, or unknown.
    """

    needs_features: bool = False
    arms: Literal["goals", "categories", ""] = ""


ESTIMATORS: Registry[EstimatorSpec] = Registry("estimator")


def register_estimator(
    name: str, label: str = "", settings: type[Section] = NoSettings, **fields: Any
) -> Callable[[BuilderT], BuilderT]:
    """Register a builder (decorator), so that configurations can name the estimator.

    Args: see `EstimatorSpec` and `Spec`.
    """
    return ESTIMATORS.adding(EstimatorSpec, name, label=label, settings=settings, **fields)


def make_estimator(name: str, parts: EstimatorParts, settings: Any = None) -> CompetenceEstimator:
    """Build the estimator `name`; `settings` None: its default constants.

    Raises:
        InputError: unknown estimator.
    """
    spec = ESTIMATORS.find(name)
    return spec.build(parts, spec.settings() if settings is None else settings)
