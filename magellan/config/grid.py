"""The runs of an experiment: sampler x variant x goal space x seed."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from magellan.config.identity import flat_keys, identity
from magellan.config.phases import beginning
from magellan.config.resolve import merged, resolve_run
from magellan.config.schema import (
    GRID_KEYS,
    PLAIN,
    VARIANT_PATTERN,
    ExperimentConfig,
    RunConfig,
    sections,
)
from magellan.errors import InputError, shown
from magellan.model_files import check_planned_backbone

BEGINNING = "beginning"
"""Stands for the variant of a run that is no part of the grid: others start from it."""


def run_path(sampler: str, goal_space: str, seed: int, identity: str) -> str:
    """Folder of a run, below that of its experiment."""
    return f"runs/{sampler}/{goal_space}/seed{seed}/{identity}"


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid: its place there, its resolved configuration, and what it is."""

    sampler: str
    variant: str
    goal_space: str
    seed: int
    config: RunConfig
    identity: str

    @property
    def path(self) -> str:
        """Folder of the run, below that of the experiment: another identity, another folder."""
        return run_path(self.sampler, self.goal_space, self.seed, self.identity)

    def declared(self) -> dict[str, Any]:
        """The run as manifests list it."""
        names = ("sampler", "variant", "goal_space", "seed", "identity")
        return {name: getattr(self, name) for name in names}


def variants_of(experiment: ExperimentConfig) -> Mapping[str, Mapping[str, Any]]:
    """Variants by name; the plain one where none is declared."""
    return experiment.variants or {PLAIN: {}}


def configuration(
    experiment: ExperimentConfig, sampler: str, variant: str, goal_space: str, seed: int
) -> RunConfig:
    """Resolved configuration of one run of an experiment."""
    named = {"sampler": sampler, "goal_space": goal_space, "seed": seed}
    layers = [experiment.overrides, variants_of(experiment)[variant], named]
    return resolve_run(experiment.preset, [experiment.common, *layers])


def grid(experiment: ExperimentConfig) -> list[PlannedRun]:
    """All runs, in the order of samplers, variants, goal spaces, seeds.

    A variant that makes no difference to a sampler is left out for it: `random` has no use for
    another window of the learned estimator, and equal runs are made once.
    """
    runs: list[PlannedRun] = []
    seen: set[str] = set()
    for sampler, variant, goal_space, seed in itertools.product(
        experiment.samplers, variants_of(experiment), experiment.goal_spaces, experiment.seeds
    ):
        config = configuration(experiment, sampler, variant, goal_space, seed)
        name = identity(config)
        if name not in seen:
            seen.add(name)
            runs.append(PlannedRun(sampler, variant, goal_space, seed, config, name))
    return runs


def shared_beginnings(runs: Iterable[PlannedRun]) -> dict[str, PlannedRun]:
    """Beginnings that runs share, so that each is trained once and the runs start from it.

    Returns:
        identity of a run -> the run that it starts from. That one may start from another; runs of
        which no phase is shared are trained whole, and not listed.
    """
    begun: dict[str, PlannedRun] = {}
    starts: dict[str, str] = {}
    known = {run.identity: run for run in runs}
    waiting = list(known.values())
    while waiting:
        run = waiting.pop()
        first = beginning(run.config)
        if first is not None:
            found = PlannedRun(
                first.sampler, BEGINNING, first.goal_space, first.seed, first, identity(first)
            )
            starts[run.identity] = found.identity
            if found.identity not in begun:
                begun[found.identity] = known.get(found.identity, found)
                waiting += [found] if found.identity not in known else []
    users = Counter(starts.values())

    def shares(run: str) -> bool:
        """Whether others begin as this run does, in all its phases but the last or in fewer."""
        return run in starts and (users[starts[run]] > 1 or shares(starts[run]))

    return {run: begun[first] for run, first in starts.items() if shares(run)}


def check_layers(experiment: ExperimentConfig) -> None:
    """Check overrides and variants of an experiment.

    Raises:
        InputError: a key or value does not fit, an override is the grid's to give, or a variant
            changes nothing.
    """
    _check_layer(experiment, [experiment.overrides], "overrides")
    for name, layer in experiment.variants.items():
        _check_variant_name(name)
        where = f"variants.{name}"
        _check_layer(experiment, [experiment.overrides, layer], where)
    _check_differences(experiment)
    _check_unit(experiment)


def check_models(experiment: ExperimentConfig) -> None:
    """Check that the language models of an experiment are there, or are made by the workflow.

    Raises:
        InputError: one is missing or is none.
    """
    for model in models_of(experiment):
        check_planned_backbone(model)


def models_of(experiment: ExperimentConfig) -> list[str]:
    """Values of `backbone.model` in an experiment, each once: with and without its variants."""
    layers = ({}, *experiment.variants.values())
    runs = (_resolved(experiment, [experiment.overrides, layer]) for layer in layers)
    return list(dict.fromkeys(run.backbone.model for run in runs))


def _check_unit(experiment: ExperimentConfig) -> None:
    """One x axis for all runs of an experiment: each variant ends runs by the same unit."""
    units = {
        name: _resolved(experiment, [experiment.overrides, layer]).budget.unit
        for name, layer in experiment.variants.items()
    }
    first = next(iter(units), "")
    for name, unit in units.items():
        if unit != units[first]:
            raise InputError(
                f"variants.{name}.budget: its runs end by {unit}, those of variants.{first} by "
                f"{units[first]}; allowed: one unit for all runs of an experiment"
            )


def _resolved(experiment: ExperimentConfig, layers: list[Mapping[str, Any]]) -> RunConfig:
    return resolve_run(experiment.preset, [experiment.common, *layers])


def _check_layer(experiment: ExperimentConfig, layers: list[Mapping[str, Any]], where: str) -> None:
    for key, value in layers[-1].items():
        if key in GRID_KEYS:
            raise InputError(
                f"{where}.{key}: {shown(value)} is not allowed: the experiment gives it; "
                f"allowed here: observers, phases, {', '.join(sections())}"
            )
    try:
        _resolved(experiment, layers)
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def _check_variant_name(name: str) -> None:
    if not re.fullmatch(VARIANT_PATTERN, name):
        raise InputError(
            f"variants: name {shown(name)} is not allowed; allowed: letters, digits, _ . and -, "
            "a letter or digit first"
        )


def _check_differences(experiment: ExperimentConfig) -> None:
    """Two variants with the same values are a mistake."""
    known: dict[RunConfig, str] = {}
    for name, layer in experiment.variants.items():
        config = _resolved(experiment, [experiment.overrides, layer])
        if config in known:
            raise InputError(
                f"variants.{name}: is the same as variants.{known[config]}; allowed: a difference "
                "in the value of a key"
            )
        known[config] = name


def given_keys(experiment: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """Flat keys that an experiment, as its manifest has it, gives to the runs of a variant."""
    layers = merged(experiment.get("overrides") or {}, _variant(experiment, variant))
    return flat_keys(layers)


def _variant(experiment: Mapping[str, Any], variant: str) -> Mapping[str, Any]:
    return (experiment.get("variants") or {}).get(variant) or {}
