"""What a run is: the one place that says when two configurations mean the same run.

A run is its sampler, goal space and seed, its world where that is not the default one, its phases
where it has several, and every value that can matter for it and differs from its default. So a key
that is added to the schema changes the identity of no earlier run, and a key of a sampler or an
estimator counts only for runs that use it. What says how a job is run (threads, checkpoints, the
preset's name) does not count.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from magellan.backends import BACKENDS
from magellan.competence import ESTIMATORS
from magellan.config.modules import own_code
from magellan.config.phases import driver_of, drivers_of, phases_of
from magellan.config.schema import RunConfig, run_model, sections
from magellan.model.settings import BackendConfig
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS

LENGTH = 16
"""Letters of an identity: 64 bits in hexadecimal."""

GENERATION = 1
"""Counts changes of defaults. Raise it when a default changes: a value that equals its default is
not written down, so without that two different runs would have one identity."""

NAMED = ("sampler", "goal_space", "seed")
# Keys that say how a job is run and what it leaves, and change no number in its tables.
OPERATIONAL_KEYS = (
    *("checkpoint_seconds", "checkpoint_share", "stop_margin_seconds"),
    *("export", "keep_every"),
)
OPERATIONAL = frozenset(
    {
        *("preset", "threads", "modules", "backbone.passes"),
        *(f"backend.{key}" for key in BackendConfig.model_fields),
        *(f"budget.{key}" for key in OPERATIONAL_KEYS),
    }
)


def _learns_temperature(config: RunConfig) -> bool:
    return config.agent.temperature != "fixed"


def _aims_at_share(config: RunConfig) -> bool:
    return config.agent.temperature == "max_entropy"


def _aims_at_number(config: RunConfig) -> bool:
    return config.agent.temperature == "target_entropy"


def _counts_episodes(config: RunConfig) -> bool:
    return config.budget.unit == "episodes"


def _explores(config: RunConfig) -> bool:
    return any(SAMPLERS[phase.sampler].epsilon for phase in phases_of(config))


def _follows_another(config: RunConfig) -> bool:
    samplers = {phase.sampler for phase in phases_of(config)}
    return any(driver_of(config, name) != SAMPLERS[name].estimator for name in samplers)


def _samples_the_space(config: RunConfig) -> bool:
    """Whether a refresh of the learned estimator draws a pool instead of scoring every goal."""
    pool, world = config.section("competence").pool, WORLDS[config.world]
    return any(sum(world.parse(phase.goal_space)) > pool for phase in phases_of(config))


def _draws_groups(config: RunConfig) -> bool:
    return "learned_groups" in estimators_of(config)


MATTERS_IF: Mapping[str, Callable[[RunConfig], bool]] = {
    "agent.temperature_learning_rate": _learns_temperature,
    "agent.target_entropy": _aims_at_number,
    "agent.target_entropy_scale": _aims_at_share,
    "competence.pool": _samples_the_space,
    **dict.fromkeys(
        ("competence.regions", "competence.regroup", "competence.space", "competence.within"),
        _draws_groups,
    ),
    "budget.episodes": _counts_episodes,
    "samplers.epsilon_start": _explores,
    "samplers.epsilon_end": _explores,
    "samplers.epsilon_decay": _explores,
    "samplers.estimator": _follows_another,
}
"""Keys that count only under a condition."""


def estimators_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the estimators of a run: the one that drives its first sampler, then the others.

    An estimator that drives a later phase watches until then.
    """
    driver = driver_of(config, phases_of(config)[0].sampler)
    wanted = {*config.observers, *drivers_of(config)} - {driver}
    others = [name for name in ESTIMATORS if name in wanted]
    return tuple(others) if driver is None else (driver, *others)


def counted(config: RunConfig) -> dict[str, Any]:
    """What makes the run what it is: flat keys and JSON values, sorted; see the module."""
    values = flat_keys(config.model_dump(mode="json"))
    defaults = _defaults(run_model())
    kept = {name: values[name] for name in NAMED} | {"generation": GENERATION}
    watchers = set(config.observers) - {driver_of(config, config.sampler)}
    phases = phases_of(config)
    if len(phases) > 1:
        kept["phases"] = [phase.described() for phase in phases]
    if config.world != DEFAULT_WORLD:
        kept["world"] = config.world
    if watchers:
        kept["observers"] = sorted(watchers)
    unused = _unused_sections(config)
    for key, value in values.items():
        section, dot, _ = key.partition(".")
        if not dot or section in unused or key in OPERATIONAL or value == defaults[key]:
            continue
        if key in MATTERS_IF and not MATTERS_IF[key](config):
            continue
        kept[key] = value
    return dict(sorted(kept.items()))


@functools.lru_cache(maxsize=8)
def _defaults(model: type[RunConfig]) -> Mapping[str, Any]:
    """Flat keys of a run that nothing is said of."""
    return flat_keys(model().model_dump(mode="json"))


def _unused_sections(config: RunConfig) -> set[str]:
    """Sections that have nothing to say about this run."""
    samplers = [SAMPLERS[phase.sampler] for phase in phases_of(config)]
    used = {sampler.section for sampler in samplers}
    used |= {ESTIMATORS[name].section for name in estimators_of(config)}
    own = {sampler.section for sampler in SAMPLERS.values()}
    own |= {estimator.section for estimator in ESTIMATORS.values()}
    # How a job is run; one without constants has no section, whatever its name.
    own |= {each.section for each in BACKENDS.values() if each.settings.model_fields}
    return (own - used) & set(sections())


def own_code_of(config: RunConfig) -> dict[str, dict[str, str]]:
    """The files under `modules`, and what a run uses of them (`modules.own_code`)."""
    used = {(SAMPLERS.kind, phase.sampler) for phase in phases_of(config)}
    used |= {(ESTIMATORS.kind, name) for name in estimators_of(config)}
    used |= {(WORLDS.kind, config.world), (BACKENDS.kind, config.backend.kind)}
    return own_code(config.modules, used)


def hash_of(keys: Mapping[str, Any]) -> str:
    """Identity of a run from its counted keys."""
    text = json.dumps(keys, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def identity(config: RunConfig) -> str:
    """Name of what a run is, 16 letters: equal exactly when `counted` is equal."""
    return hash_of(counted(config))


def flat_keys(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one level: `section.key` -> value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat_keys(value, f"{prefix}{key}.") if isinstance(value, Mapping) else None
        flat |= {f"{prefix}{key}": value} if inner is None else inner
    return flat
