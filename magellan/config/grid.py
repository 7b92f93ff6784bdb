"""The runs of an experiment: sampler x variant x goal space x seed."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magellan.config.identity import flat_keys, identity
from magellan.config.modules import load_modules
from magellan.config.phases import beginning, part, phases_of
from magellan.config.resolve import merged, resolve_run
from magellan.config.schema import (
    GRID_KEYS,
    PLAIN,
    VARIANT_PATTERN,
    ExperimentConfig,
    RunConfig,
    sections,
)
from magellan.core.errors import InputError, shown
from magellan.core.settings import validated
from magellan.model.files import check_planned_backbone

BEGINNING = "(beginning)"
"""Stands for the variant of a run that is no part of the grid: others start from it. No variant of
an experiment can be called so."""


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
    for place in itertools.product(
        experiment.samplers, variants_of(experiment), experiment.goal_spaces
    ):
        first = configuration(experiment, *place, experiment.seeds[0])
        for seed in experiment.seeds:  # checked already, and no other key depends on it
            config = first.model_copy(update={"seed": seed})
            name = identity(config)
            if name not in seen:
                seen.add(name)
                runs.append(PlannedRun(*place, seed, config, name))
    return runs


@dataclass(frozen=True)
class PlannedStart:
    """What a run of the workflow starts from.

    Attributes:
        run: where it starts.
        kept: length of that run at which it keeps the checkpoint; None: where it ends.
    """

    run: PlannedRun
    kept: int | None = None

    @property
    def path(self) -> str:
        """Folder, below that of the experiment."""
        return self.run.path if self.kept is None else f"{self.run.path}/{self.kept}"


def shared_beginnings(runs: Iterable[PlannedRun]) -> dict[str, PlannedStart]:
    """Beginnings that runs share, so that each is trained once and the runs start from it.

    A beginning that a longer run passes where it keeps a checkpoint is no run of its own.

    Returns:
        identity of a run -> what it starts from. That run may start from another; runs of which no
        phase is shared are trained whole, and not listed.
    """
    known = {run.identity: run for run in runs}
    starts, begun = _beginnings(known)
    longer = _longest_keepers(begun, known)
    planned = {run: longer.get(first, PlannedStart(begun[first])) for run, first in starts.items()}
    users = Counter(start.run.identity for start in planned.values())

    def shares(run: str) -> bool:
        """Whether others begin as this run does, in all its phases but the last or in fewer."""
        if run not in planned:
            return False
        first = planned[run].run.identity
        return users[first] > 1 or shares(first)

    return {run: start for run, start in planned.items() if shares(run)}


def _beginnings(known: Mapping[str, PlannedRun]) -> tuple[dict[str, str], dict[str, PlannedRun]]:
    """What each run begins with, and beginnings with: run -> beginning, and beginnings by identity.

    known: runs of the grid by identity; a beginning that is one of them is that run.
    """
    starts: dict[str, str] = {}
    begun: dict[str, PlannedRun] = {}
    waiting = list(known.values())
    while waiting:
        run = waiting.pop()
        first = beginning(run.config)
        if first is None:
            continue
        name = starts[run.identity] = identity(first)
        if name not in begun:
            found = PlannedRun(first.sampler, BEGINNING, first.goal_space, first.seed, first, name)
            begun[name] = known.get(name, found)
            waiting += [found] if name not in known else []
    return starts, begun


def _longest_keepers(
    begun: Mapping[str, PlannedRun], known: Mapping[str, PlannedRun]
) -> dict[str, PlannedStart]:
    """Beginnings that are no runs of the grid, and the longest run that keeps the same checkpoint.

    That run is in its last phase there, so that it trains it itself wherever it starts.
    """
    there = {**begun, **known}.values()
    keepers = [run for run in there if run.config.budget.keep_every]
    keepers.sort(key=lambda run: run.config.budget.end, reverse=True)
    found: dict[str, PlannedStart] = {}
    for name in begun.keys() - known.keys():
        first = begun[name]
        longest = next((run for run in keepers if _keeps(run, first)), None)
        if longest is not None:
            found[name] = PlannedStart(longest, first.config.budget.end)
    return found


def _keeps(run: PlannedRun, first: PlannedRun) -> bool:
    """Whether a run keeps a checkpoint in its last phase that is the end of a beginning."""
    budget, end = run.config.budget, first.config.budget.end
    if (run.sampler, run.goal_space, run.seed) != (first.sampler, first.goal_space, first.seed):
        return False  # asked first, as it is soon answered
    if budget.unit == "episodes" and end % budget.practice_window:
        return False  # a row of practice.csv would lie across it
    last = phases_of(run.config)[-1]
    if end % budget.keep_every or not last.begins < end < budget.end:
        return False
    return identity(part(run.config, end)) == first.identity


def load_experiment(values: Mapping[str, Any], models: bool = True) -> ExperimentConfig:
    """Validate an experiment's configuration; loads the files under `modules`.

    models: whether its language models must be there.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"config: {shown(values)} is not a mapping of keys to values")
    load_modules(values.get("modules", ()))
    experiment = validated(ExperimentConfig, dict(values))
    _resolved_layer(experiment, [experiment.overrides], "overrides")
    configs: dict[str, RunConfig] = {}
    for name, layer in experiment.variants.items():
        _check_variant_name(name)
        layers = [experiment.overrides, layer]
        configs[name] = _resolved_layer(experiment, layers, f"variants.{name}")
    _check_differences(configs)
    _check_unit(configs)
    if models:
        check_models(experiment)
    return experiment


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


def _check_unit(variants: Mapping[str, RunConfig]) -> None:
    """One x axis for all runs of an experiment: each variant ends runs by the same unit."""
    first = next(iter(variants), "")
    for name, config in variants.items():
        unit, wanted = config.budget.unit, variants[first].budget.unit
        if unit != wanted:
            raise InputError(
                f"variants.{name}.budget: its runs end by {unit}, those of variants.{first} by "
                f"{wanted}; allowed: one unit for all runs of an experiment"
            )


def _resolved(experiment: ExperimentConfig, layers: Sequence[Mapping[str, Any]]) -> RunConfig:
    return resolve_run(experiment.preset, [experiment.common, *layers])


def _resolved_layer(
    experiment: ExperimentConfig, layers: Sequence[Mapping[str, Any]], where: str
) -> RunConfig:
    for key, value in layers[-1].items():
        if key in GRID_KEYS:
            raise InputError(
                f"{where}.{key}: {shown(value)} is not allowed: the experiment gives it; "
                f"allowed here: observers, phases, {', '.join(sections())}"
            )
    try:
        return _resolved(experiment, layers)
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def _check_variant_name(name: str) -> None:
    if not re.fullmatch(VARIANT_PATTERN, name):
        raise InputError(
            f"variants: name {shown(name)} is not allowed; allowed: letters, digits, _ . and -, "
            "a letter or digit first"
        )


def _check_differences(variants: Mapping[str, RunConfig]) -> None:
    """Two variants with the same values are a mistake."""
    known: dict[RunConfig, str] = {}
    for name, config in variants.items():
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


ON_CPU, ON_GPU = 2000, 4000
"""MB of anything but the model: libraries, goals, replay; libraries for GPUs are larger."""


def host_memory_mb(config: RunConfig, parameters: int) -> int:
    """MB that a run asks a cluster for, of the machine's own memory, not of a GPU's.

    On a CPU measured with zoo-mini and with a model of 248 million parameters (docs/speed.md):
    weights with their adapters, and what a batch of transitions leaves behind for its gradients.
    With a GPU these are there; here the weights are read in float32, for `merged` with a copy. That
    part is arithmetic. `auto` may find no GPU, and asks for what a CPU needs. docs/slurm.md.

    parameters: numbers in the model's weights.
    """
    merged, batch = config.backbone.lora_mode == "merged", config.agent.batch_size
    if config.backend.device.startswith("cuda"):
        return ON_GPU + round(parameters / 1e6 * (8 if merged else 4))
    each = 15 + 0.2 * batch if merged else 6 + 0.5 * batch
    return ON_CPU + round(parameters / 1e6 * each)
