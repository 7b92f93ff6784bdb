"""Goal samplers: an estimator, a signal and an exploration schedule, composed in one file each.

To add one, write such a file and name it under `modules` of an experiment, or import it below; the
contract test then covers it.
"""

from __future__ import annotations

from typing import Any

from magellan.core.errors import InputError, NotFiniteError
from magellan.samplers.base import ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import SAMPLERS, SamplerParts, SamplerSpec, register_sampler

# Importing a sampler registers it; names are listed in this order.
from magellan.samplers import random, online, ek_online, magellan, ek_eval, scripted, learnability  # isort: skip


def make_sampler(name: str, parts: SamplerParts, settings: Any = None) -> GoalSampler:
    """The sampler of this name, with these constants of its own or their defaults.

    Raises:
        InputError: there is no sampler of that name, it needs an estimator and was given none, or
            its signal does not go with its estimator.
        NotFiniteError: a weight is negative or not finite.
    """
    spec = SAMPLERS.find(name)
    if spec.estimator is not None and parts.estimator is None:
        raise InputError(f"sampler: {name} needs the estimator {spec.estimator}; none was given")
    origin = f"sampler {name} ({spec.source}): "
    try:
        sampler = spec.build(parts, spec.settings() if settings is None else settings)
    except NotFiniteError as error:
        raise NotFiniteError(f"{origin}{error}") from None
    sampler.origin = origin
    sampler.check_untried()
    return sampler


__all__ = [
    "SAMPLERS",
    "ExponentialEpsilon",
    "GoalSampler",
    "SamplerParts",
    "SamplerSpec",
    "ek_eval",
    "ek_online",
    "learnability",
    "magellan",
    "make_sampler",
    "online",
    "random",
    "register_sampler",
    "scripted",
]
