"""Goal samplers: an estimator, a signal and an exploration schedule, composed in one file each.

To add one, write such a file and name it under `modules` of an experiment, or import it below; the
contract test then covers it.
"""

from __future__ import annotations

from typing import Any

from magellan.core.errors import InputError, NotFiniteError
from magellan.samplers.base import ConstantEpsilon, ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import SAMPLERS, SamplerParts, SamplerSpec, register_sampler
from magellan.samplers.rules import Rule, Seen

# Importing a sampler registers it; names are listed in this order.
from magellan.samplers import (  # isort: skip
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
)


def make_sampler(name: str, parts: SamplerParts, settings: Any = None) -> GoalSampler:
    """The sampler of this name, with these constants of its own or their defaults.

    Raises:
        InputError: there is no sampler of that name, or it needs an estimator and was given none.
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
    "ConstantEpsilon",
    "ExponentialEpsilon",
    "GoalSampler",
    "Rule",
    "SamplerParts",
    "SamplerSpec",
    "Seen",
    "adarft",
    "alp_gmm",
    "dump",
    "e2h",
    "ek_eval",
    "ek_online",
    "fast_slow",
    "greso",
    "learnability",
    "magellan",
    "make_sampler",
    "mopps",
    "online",
    "pcl",
    "plr",
    "pools",
    "procurl",
    "random",
    "regions",
    "register_sampler",
    "scripted",
    "sec",
    "tscl",
    "vds",
]
