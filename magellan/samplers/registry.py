"""Registry of goal samplers, and the parts they are built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from magellan.competence.base import CompetenceEstimator
from magellan.competence.registry import ESTIMATORS
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.registry import BuilderT, Registry, Spec
from magellan.samplers.base import NEVER, GoalSampler, Schedule
from magellan.samplers.rules import Rule
from magellan.worlds import GoalSet


def no_features(*_: Any) -> np.ndarray:
    """Raise InputError: the run has no language model."""
    raise InputError("features: this run has no language model; allowed: a run with one")


@dataclass(frozen=True)
class SamplerParts:
    """Arguments of a sampler's builder, supplied by the run.

    Attributes:
        goals: the training goal space.
        rng: the sampler's own stream.
        epsilon: exploration by number of updates, from the shared section `samplers`.
        estimator: the estimator that drives the sampler in this run, if any.
        features: returns the untrained language model's representation of each goal, float32
            (n_goals, width), the same at every call; computed on demand.
        seed: root seed of the run.
        embed: returns that representation of prompts, float32 (n, width).
        transcript: file for what a chat model is asked and answers; None: none.
    """

    goals: GoalSet
    rng: np.random.Generator
    epsilon: Schedule
    estimator: CompetenceEstimator | None = None
    features: Callable[[], np.ndarray] = no_features
    seed: int = 0
    embed: Callable[[Sequence[str]], np.ndarray] = no_features
    transcript: Path | None = None


Explores = Literal["arms", "goals", "categories", ""]
"""What exploration draws uniformly: arms of the estimator, goals, categories; empty: unknown."""


@dataclass(frozen=True, kw_only=True)
class SamplerSpec(Spec):
    """A sampler that a configuration can name.

    `build` is a function (parts, settings of the sampler's own section) to the sampler, or a class
    of rules: then the fields say the rest.

    Attributes:
        estimator: name of the competence estimator that drives it, if any.
        epsilon: whether it explores by the shared epsilon schedule.
        needs_features: whether it needs features of goals.
        ordered: whether it needs groups in order, easy to hard.
        needs_all: whether its estimator must predict all goals; of a class of rules always.
        explores: what it explores, or a function of its settings that returns this; empty if it
            does not explore by epsilon.
        arms: of a class of rules, as in `GoalSampler`.
    """

    estimator: str | None = None
    epsilon: bool = True
    needs_features: bool = False
    ordered: bool = False
    needs_all: bool = False
    explores: Explores | Callable[[Any], Explores] = ""
    arms: Literal["goals", "categories"] | None = None

    @property
    def is_rule(self) -> bool:
        """Whether `build` is a class of rules."""
        return isinstance(self.build, type) and issubclass(self.build, Rule)

    def driver(self, override: str | None) -> str | None:
        """Return the name of the estimator that drives it in a run; None if it uses none.

        override: value of `samplers.estimator`.
        """
        return self.estimator and (override or self.estimator)

    def explored(self, settings: Any, estimator: str | None) -> Explores:
        """Return what it explores in a run: "goals", "categories", or empty.

        settings: its constants.
        estimator: name of the run's estimator that drives it, if any.
        """
        explores = self.explores(settings) if callable(self.explores) else self.explores
        if explores != "arms":
            return explores
        spec = ESTIMATORS.get(estimator or "")
        return "" if spec is None else spec.arms


SAMPLERS: Registry[SamplerSpec] = Registry("sampler")


def register_sampler(name: str, label: str = "", **fields: Any) -> Callable[[BuilderT], BuilderT]:
    """Register a builder or a class of rules (decorator), so that configurations can name it.

    Args: see `SamplerSpec` and `Spec`.
    """
    return SAMPLERS.adding(SamplerSpec, name, label=label, **fields)


def make_sampler(name: str, parts: SamplerParts, settings: Any = None) -> GoalSampler:
    """Build the sampler `name`; `settings` None: its default constants.

    Raises:
        InputError: unknown sampler, or its estimator is missing.
        NotFiniteError: a weight is negative or not finite.
    """
    spec = SAMPLERS.find(name)
    if spec.estimator is not None and parts.estimator is None:
        raise InputError(f"sampler: {name} needs the estimator {spec.estimator}; none was given")
    origin = f"sampler {name} ({spec.source}): "
    try:
        sampler = _built(spec, parts, spec.settings() if settings is None else settings)
    except NotFiniteError as error:
        raise NotFiniteError(f"{origin}{error}") from None
    sampler.origin = origin
    return sampler


def _built(spec: SamplerSpec, parts: SamplerParts, settings: Any) -> GoalSampler:
    """Call the builder, or give the rule its estimator, exploration and arms."""
    rule: Any = spec.build
    if not spec.is_rule:
        return rule(parts, settings)
    estimator = parts.estimator if spec.estimator else None
    schedule = parts.epsilon if spec.epsilon else NEVER
    return GoalSampler(parts.goals, estimator, rule(settings), schedule, parts.rng, spec.arms)
