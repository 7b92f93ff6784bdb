"""Goal samplers: an estimator, a signal and an exploration schedule, composed in one file each.

To add one, write such a file and list its `build` in SAMPLERS; the contract test then covers it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.errors import InputError
from magellan.samplers import ek_online, magellan, online, random
from magellan.samplers.arms import Goals
from magellan.samplers.base import GoalSampler, SamplerSettings

SAMPLERS: dict[str, Callable[..., GoalSampler]] = {
    "random": random.build,
    "online": online.build,
    "ek_online": ek_online.build,
    "magellan": magellan.build,
}
"""Name to builder(goals, settings, rng, learned=None)."""


def make_sampler(
    name: str,
    goals: Goals,
    rng: np.random.Generator,
    settings: SamplerSettings | None = None,
    learned: CompetenceEstimator | None = None,
) -> GoalSampler:
    """The sampler called `name` over `goals`; `learned` is the estimator that "magellan" follows.

    Raises InputError if there is no sampler of that name.
    """
    if name not in SAMPLERS:
        raise InputError(f"sampler: {name!r} is unknown; allowed are {', '.join(SAMPLERS)}")
    return SAMPLERS[name](goals, settings or SamplerSettings(), rng, learned=learned)


__all__ = ["SAMPLERS", "GoalSampler", "Outcomes", "SamplerSettings", "make_sampler"]
