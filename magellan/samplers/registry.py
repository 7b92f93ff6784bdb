"""Goal samplers by name, and what they are built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.core.registry import Look, Registry, source_of
from magellan.core.settings import NoSettings, Section
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, Schedule


@dataclass(frozen=True)
class SamplerParts:
    """What a run gives to the builder of a sampler.

    Attributes:
        goals: the training goal space.
        rng: the sampler's own stream.
        epsilon: exploration by number of updates, from the keys that all samplers share.
        estimator: the estimator that the sampler is registered with; None if with none.
    """

    goals: Goals
    rng: np.random.Generator
    epsilon: Schedule
    estimator: CompetenceEstimator | None = None


Builder = Callable[[SamplerParts, Any], GoalSampler]
"""(parts, settings of the sampler's own section) to the sampler at the start of a run."""


@dataclass(frozen=True)
class SamplerSpec:
    """A sampler that a configuration can name.

    Attributes:
        name: in `samplers` of an experiment and in tables.
        build: its builder.
        label: its name in figures.
        estimator: name of the competence estimator that drives it; None: it follows none.
        settings: its own constants; their keys stand in the section of the sampler's name.
        epsilon: whether it explores by the epsilon that samplers share.
        look: colour and line style in figures; None takes a spare one.
        source: file that it comes from.
    """

    name: str
    build: Builder
    label: str
    estimator: str | None = None
    settings: type[Section] = NoSettings
    epsilon: bool = True
    look: Look | None = None
    source: str = ""

    @property
    def section(self) -> str:
        """Section of its own constants."""
        return self.name


SAMPLERS: Registry[SamplerSpec] = Registry("sampler")


def register_sampler(
    name: str,
    label: str = "",
    estimator: str | None = None,
    settings: type[Section] = NoSettings,
    epsilon: bool = True,
    look: Look | None = None,
) -> Callable[[Builder], Builder]:
    """Decorator of a builder: the sampler can then be named in configurations.

    Args: see `SamplerSpec`.
    """

    def add(build: Builder) -> Builder:
        SAMPLERS.add(
            SamplerSpec(
                name, build, label or name, estimator, settings, epsilon, look, source_of(build)
            )
        )
        return build

    return add
