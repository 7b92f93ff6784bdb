"""Goal samplers, one file each: an estimator, a selection rule and an exploration schedule.

To add one, write such a file and list it under `modules` of an experiment, or import it below; the
contract test then covers it.
"""

from __future__ import annotations

from typing import Any

from magellan.core.errors import InputError, NotFiniteError
from magellan.samplers.base import ConstantEpsilon, ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import SAMPLERS, SamplerParts, SamplerSpec, register_sampler
from magellan.samplers.rules import ArmStats, Rule

# Importing a sampler registers it; names are listed in this order.
from magellan.samplers import (  # noqa: F401  # isort: skip
    random,
    online,
    ek_online,
    magellan,
    ek_eval,
    scripted,
    learnability,
    plr,
    procurl,
    mopps,
    pcl,
    fast_slow,
    greso,
    pools,
    vds,
    alp_gmm,
    tscl,
    sec,
    dump,
    e2h,
    adarft,
    regions,
    frontier,
    experimenter,
    proposer,
)


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
        sampler = spec.build(parts, spec.settings() if settings is None else settings)
    except NotFiniteError as error:
        raise NotFiniteError(f"{origin}{error}") from None
    sampler.origin = origin
    return sampler


__all__ = [
    "SAMPLERS",
    "ArmStats",
    "ConstantEpsilon",
    "ExponentialEpsilon",
    "GoalSampler",
    "Rule",
    "SamplerParts",
    "SamplerSpec",
    "make_sampler",
    "register_sampler",
]
