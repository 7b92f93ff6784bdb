"""Parts of a curriculum: configuration, groups in order, the model that reads goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from magellan.backends import Backend, make_backend
from magellan.competence import ESTIMATORS, EstimatorSpec
from magellan.competence.prompt_tokens import GoalFeatures
from magellan.config import RunConfig, checked_run, estimators_of
from magellan.core.errors import InputError, not_allowed
from magellan.core.registry import is_built_in
from magellan.samplers import SAMPLERS, SamplerSpec
from magellan.worlds.texts import Texts

if TYPE_CHECKING:
    from magellan.model.embedded import Embed

Settings = Mapping[str, Mapping[str, Any]]
"""Constants to override, by section, as under `overrides` of an experiment."""


def run_config(sampler: str, seed: int, settings: Settings) -> RunConfig:
    """Configuration of a run with this sampler; only sections that affect goals are allowed."""
    if not isinstance(settings, Mapping):
        raise not_allowed("settings", settings, "sections of constants, by name")
    spec = SAMPLERS.find(sampler)
    allowed = {"samplers", "backbone", "backend", spec.section}
    for name, section in settings.items():
        if not isinstance(section, Mapping):
            raise not_allowed(f"settings: {name}", section, "a section of constants")
    driver = spec.driver(settings.get("samplers", {}).get("estimator"))
    if driver is not None:
        allowed.add(ESTIMATORS.find(driver, "samplers.estimator").section)
    for name in settings.keys() - allowed:
        raise not_allowed("settings", name, ", ".join(sorted(allowed)))
    return checked_run({"sampler": sampler, "seed": seed, **settings})


def ordered_groups(groups: set[str], order: Sequence[str] | None, sampler: str) -> list[str]:
    """The groups in the given order, or by name."""
    names = sorted(groups)
    if order is None and SAMPLERS[sampler].ordered and len(names) > 1:
        raise InputError(
            f"order: none given; the sampler {sampler} needs one; allowed: all groups, easy to hard"
        )
    if order is not None and sorted(order) != names:
        raise not_allowed("order", list(order), f"each of {', '.join(names)} once")
    return names if order is None else list(order)


def backend_for(
    config: RunConfig, embed: str | Embed | None, world: Texts, seed: int
) -> Backend | None:
    """Return the model that reads goals; None if sampler and estimators do not, or none is given.

    Raises:
        InputError: a sampler that reads goals, without `embed`.
    """
    specs: list[SamplerSpec | EstimatorSpec] = [SAMPLERS[config.sampler]]
    specs += [ESTIMATORS[name] for name in estimators_of(config)]
    readers = [spec for spec in specs if spec.needs_features or not is_built_in(spec)]
    if embed is None and any(spec.needs_features for spec in readers):
        raise InputError(
            f"embed: none given; the sampler {config.sampler} reads goals; allowed: the name of a "
            "language model, or a function from texts to vectors"
        )
    if embed is None or not readers:
        return None
    if isinstance(embed, str):
        model = config.backbone.model_copy(update={"model": embed})
        return make_backend(model, config.backend, seed, world)
    from magellan.backends.local import LocalBackend
    from magellan.model.embedded import Embedded

    backend = LocalBackend(cast(Any, Embedded(embed, world.listed[0])), world)
    if SAMPLERS[config.sampler].needs_features:
        GoalFeatures(backend)(world.goals(), np.zeros(1, np.int64))  # may be refused
    return backend
