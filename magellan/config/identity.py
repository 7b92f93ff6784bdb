"""Identity of a run: defines when two configurations are the same run.

It covers sampler, goal space and seed, the world if not the default, the phases if several, and
every value that affects the run and differs from its default. So a new key in the schema leaves
earlier identities unchanged, and the keys of a sampler or an estimator count only for runs that use
it. Operational keys do not count: those that change no number (checkpoints, the preset's name), or
only its rounding (threads, device, micro-batches), as another machine would.
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
from magellan.config.phases import driver_of, estimators_of, phases_of
from magellan.config.schema import RunConfig, run_model
from magellan.model.settings import BackendConfig
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS

LENGTH = 16  # hexadecimal digits

GENERATION = 1
"""Number of changes of defaults. Raise it when a default changes: values equal to their default are
not counted, so different runs would otherwise have the same identity."""

NAMED = ("sampler", "goal_space", "seed")
OPERATIONAL = frozenset(
    {
        *("backbone.passes", "budget.checkpoint_seconds", "budget.checkpoint_share"),
        *("budget.stop_margin_seconds", "budget.export", "budget.keep_every"),
        *(f"backend.{key}" for key in BackendConfig.model_fields if key != "dtype"),
    }
)


def _uses_epsilon(config: RunConfig) -> bool:
    return any(SAMPLERS[phase.sampler].epsilon for phase in phases_of(config))


def _replaces_estimator(config: RunConfig) -> bool:
    samplers = {phase.sampler for phase in phases_of(config)}
    return any(driver_of(config, name) != SAMPLERS[name].estimator for name in samplers)


def _samples_pool(config: RunConfig) -> bool:
    """Whether the learned estimator scores a sample of goals at a refresh, not all of them."""
    pool, world = config.section("competence").pool, WORLDS[config.world]
    return any(sum(world.parse(phase.goal_space)) > pool for phase in phases_of(config))


MATTERS_IF: Mapping[str, Callable[[RunConfig], bool]] = {
    "agent.temperature_learning_rate": lambda config: config.agent.temperature != "fixed",
    "agent.target_entropy": lambda config: config.agent.temperature == "target_entropy",
    "agent.target_entropy_scale": lambda config: config.agent.temperature == "max_entropy",
    "competence.pool": _samples_pool,
    **dict.fromkeys(
        ("competence.regions", "competence.regroup"),
        lambda config: "learned_groups" in estimators_of(config),
    ),
    "budget.episodes": lambda config: config.budget.unit == "episodes",
    "samplers.epsilon_start": _uses_epsilon,
    "samplers.epsilon_end": _uses_epsilon,
    "samplers.epsilon_decay": _uses_epsilon,
    "samplers.estimator": _replaces_estimator,
}
"""Keys that count only if a condition holds."""


def counted(config: RunConfig) -> dict[str, Any]:
    """Return the values that enter the identity: flat keys, JSON values, sorted."""
    values = flat_keys(config.model_dump(mode="json"))
    defaults = _defaults(run_model())
    result = {name: values[name] for name in NAMED} | {"generation": GENERATION}
    observers = set(config.observers) - {driver_of(config, config.sampler)}
    phases = phases_of(config)
    if len(phases) > 1:
        result["phases"] = [phase.as_dict() for phase in phases]
    if config.world != DEFAULT_WORLD:
        result["world"] = config.world
    if observers:
        result["observers"] = sorted(observers)
    used = {SAMPLERS[phase.sampler].section for phase in phases}
    used |= {ESTIMATORS[name].section for name in estimators_of(config)}
    specs = (*SAMPLERS.values(), *ESTIMATORS.values(), *BACKENDS.values())
    # One without constants has no section, whatever its name. Those of backends are operational.
    unused = {spec.section for spec in specs if spec.settings.model_fields} - used
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if not dot or section in unused or key in OPERATIONAL or value == defaults[key]:
            continue
        if name in config.section(section).operational:
            continue
        if key in MATTERS_IF and not MATTERS_IF[key](config):
            continue
        result[key] = value
    return dict(sorted(result.items()))


@functools.lru_cache(maxsize=8)
def _defaults(model: type[RunConfig]) -> Mapping[str, Any]:
    return flat_keys(model().model_dump(mode="json"))


def own_code_of(config: RunConfig) -> dict[str, dict[str, str]]:
    """Return the files under `modules` and what a run uses of them; see `modules.own_code`."""
    used = {(SAMPLERS.kind, phase.sampler) for phase in phases_of(config)}
    used |= {(ESTIMATORS.kind, name) for name in estimators_of(config)}
    used |= {(WORLDS.kind, config.world), (BACKENDS.kind, config.backend.kind)}
    return own_code(config.modules, used)


def hash_of(keys: Mapping[str, Any]) -> str:
    """Return the identity of a run from its counted keys."""
    text = json.dumps(keys, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def identity(config: RunConfig) -> str:
    """Return the identity of a run, 16 hexadecimal digits: a hash of `counted`."""
    return hash_of(counted(config))


def flat_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten sections: `section.key` -> value, which may be a mapping; flat keys stay."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and "." not in key:
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    return flat
