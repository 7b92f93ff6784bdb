"""Goal samplers, one file each: an estimator, a selection rule and an exploration schedule.

To add one, write such a file and list it under `modules` of an experiment, or import it below; the
contract test then covers it.
"""

from __future__ import annotations

from magellan.samplers.base import ConstantEpsilon, ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import (
    SAMPLERS,
    SamplerParts,
    SamplerSpec,
    make_sampler,
    register_sampler,
)
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
    goldilocks,
    informative,
    dps,
    bots,
    insight,
    cdas,
    experimenter,
    proposer,
)


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
