"""Goal samplers by name, and what they are built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from magellan.competence.arms import Goals
from magellan.competence.base import CompetenceEstimator
from magellan.core.errors import InputError
from magellan.core.registry import Look, Registry, Spec
from magellan.core.settings import NoSettings, Section
from magellan.samplers.base import GoalSampler, Schedule


def nothing_reads() -> np.ndarray:
    """Where no language model reads goals."""
    raise InputError("features: no language model reads the goals; allowed: a run that has one")


@dataclass(frozen=True)
class SamplerParts:
    """What a run gives to the builder of a sampler.

    Attributes:
        goals: the training goal space.
        rng: the sampler's own stream.
        epsilon: exploration by number of updates, from the keys that all samplers share.
        estimator: the estimator that the sampler is registered with; None if with none.
        features: gives what the language model, before it learns, makes of each goal, float32
            (n_goals, width), the same at every moment; computed when it is called.
    """

    goals: Goals
    rng: np.random.Generator
    epsilon: Schedule
    estimator: CompetenceEstimator | None = None
    features: Callable[[], np.ndarray] = nothing_reads


Builder = Callable[[SamplerParts, Any], GoalSampler]
"""(parts, settings of the sampler's own section) to the sampler at the start of a run."""


@dataclass(frozen=True, kw_only=True)
class SamplerSpec(Spec):
    """A sampler that a configuration can name.

    Attributes:
        label: its name in figures.
        estimator: name of the competence estimator that drives it; None: it follows none.
        epsilon: whether it explores by the epsilon that samplers share.
        reads: whether it asks for features of goals.
        look: colour and line style in figures; None takes a spare one.
    """

    label: str
    estimator: str | None = None
    epsilon: bool = True
    reads: bool = False
    look: Look | None = None


SAMPLERS: Registry[SamplerSpec] = Registry("sampler")


def register_sampler(
    name: str,
    label: str = "",
    estimator: str | None = None,
    settings: type[Section] = NoSettings,
    epsilon: bool = True,
    look: Look | None = None,
    reads: bool = False,
) -> Callable[[Builder], Builder]:
    """Decorator of a builder: the sampler can then be named in configurations.

    Args: see `SamplerSpec` and `Spec`.
    """

    return SAMPLERS.adding(
        SamplerSpec,
        name,
        label=label or name,
        estimator=estimator,
        settings=settings,
        epsilon=epsilon,
        look=look,
        reads=reads,
    )
