"""The runs of an experiment: sampler x variant x goal space x seed."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magellan.config.identity import flat_keys, identity
from magellan.config.modules import load_modules
from magellan.config.phases import beginning, phases_of, truncated
from magellan.config.resolve import merged, resolve_run
from magellan.config.schema import (
    GRID_KEYS,
    PLAIN,
    VARIANT_PATTERN,
    ExperimentConfig,
    RunConfig,
    sections,
)
from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.settings import validated
from magellan.model.chat import WORLD, ChatSettings, check_chat
from magellan.model.files import check_planned_backbone
from magellan.samplers import SAMPLERS

BEGINNING = "(beginning)"
"""Variant of a run outside the grid, which others start from; not a valid name of a variant."""


def run_path(sampler: str, goal_space: str, seed: int, identity: str) -> str:
    """Return the folder of a run, relative to that of its experiment."""
    return f"runs/{sampler}/{goal_space}/seed{seed}/{identity}"


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid: its coordinates, resolved configuration and identity."""

    sampler: str
    variant: str
    goal_space: str
    seed: int
    config: RunConfig
    identity: str

    @property
    def path(self) -> str:
        """Folder of the run, relative to that of the experiment."""
        return run_path(self.sampler, self.goal_space, self.seed, self.identity)

    def declared(self) -> dict[str, Any]:
        """Return the run as manifests list it."""
        return {name: value for name, value in vars(self).items() if name != "config"}


def variants_of(experiment: ExperimentConfig) -> Mapping[str, Mapping[str, Any]]:
    """Return the variants by name; only `PLAIN` if none is declared."""
    return experiment.variants or {PLAIN: {}}


def configuration(
    experiment: ExperimentConfig, sampler: str, variant: str, goal_space: str, seed: int
) -> RunConfig:
    """Return the resolved configuration of one run of an experiment."""
    coordinates = {"sampler": sampler, "goal_space": goal_space, "seed": seed}
    layers = [experiment.overrides, variants_of(experiment)[variant], coordinates]
    return _resolve(experiment, layers)


def grid(experiment: ExperimentConfig) -> list[PlannedRun]:
    """Return all runs, in the order of samplers, variants, goal spaces, seeds.

    Equal runs are listed once, such as those of `random` in variants that change an estimator.

    Raises:
        InputError: the reference is a variant without runs of its own.
    """
    runs: list[PlannedRun] = []
    seen: set[str] = set()
    for cell in itertools.product(
        experiment.samplers, variants_of(experiment), experiment.goal_spaces
    ):
        first = configuration(experiment, *cell, experiment.seeds[0])
        for seed in experiment.seeds:  # already validated, and no other key depends on it
            config = first.model_copy(update={"seed": seed})
            name = identity(config)
            if name not in seen:
                seen.add(name)
                runs.append(PlannedRun(*cell, seed, config, name))
    reference = experiment.analysis.reference
    names = dict.fromkeys(f"{run.sampler}/{run.variant}" for run in runs)
    if "/" in reference and reference not in names:
        why = ", as its runs equal those of an earlier variant"
        raise not_allowed("analysis.reference", reference, ", ".join(names), why)
    return runs


@dataclass(frozen=True)
class PlannedStart:
    """The checkpoint that a run of the workflow starts from.

    Attributes:
        run: the run that writes it.
        kept: length of that run at which it keeps the checkpoint; None: its end.
    """

    run: PlannedRun
    kept: int | None = None

    @property
    def path(self) -> str:
        """Folder of the checkpoint, relative to that of the experiment."""
        return self.run.path if self.kept is None else f"{self.run.path}/{self.kept}"


def shared_beginnings(runs: Iterable[PlannedRun]) -> dict[str, PlannedStart]:
    """Return the starts of runs that share beginnings, so that each is trained once.

    A beginning that a longer run passes, keeping a checkpoint there, is not a separate run.

    Returns:
        identity of a run -> its start, whose run may have a start too. Runs that share no phase are
        not listed.
    """
    grid_runs = {run.identity: run for run in runs}
    names, beginnings = _beginnings(grid_runs)
    kept = _kept_beginnings(beginnings, grid_runs)
    starts = {run: kept.get(name, PlannedStart(beginnings[name])) for run, name in names.items()}
    users = Counter(start.run.identity for start in starts.values())

    def is_shared(run: str) -> bool:
        """Whether other runs share this run's beginning, or a beginning of that beginning."""
        if run not in starts:
            return False
        name = starts[run].run.identity
        return users[name] > 1 or is_shared(name)

    return {run: start for run, start in starts.items() if is_shared(run)}


def _beginnings(
    grid_runs: Mapping[str, PlannedRun],
) -> tuple[dict[str, str], dict[str, PlannedRun]]:
    """Beginnings of all runs and of their beginnings: identity by run, and runs by identity.

    grid_runs: by identity; used for beginnings that are in the grid.
    """
    names: dict[str, str] = {}
    beginnings: dict[str, PlannedRun] = {}
    queue = list(grid_runs.values())
    while queue:
        run = queue.pop()
        first = beginning(run.config)
        if first is None:
            continue
        name = names[run.identity] = identity(first)
        if name not in beginnings and name in grid_runs:
            beginnings[name] = grid_runs[name]
        elif name not in beginnings:
            new = PlannedRun(first.sampler, BEGINNING, first.goal_space, first.seed, first, name)
            beginnings[name] = new
            queue.append(new)
    return names, beginnings


def _kept_beginnings(
    beginnings: Mapping[str, PlannedRun], grid_runs: Mapping[str, PlannedRun]
) -> dict[str, PlannedStart]:
    """Starts at kept checkpoints, instead of beginnings outside the grid, from the longest run.

    That run is in its last phase there, so it trains this part itself, wherever it starts.
    """
    runs = {**beginnings, **grid_runs}.values()
    keepers = [run for run in runs if run.config.budget.keep_every]
    keepers.sort(key=lambda run: run.config.budget.end, reverse=True)
    starts: dict[str, PlannedStart] = {}
    for name in beginnings.keys() - grid_runs.keys():
        first = beginnings[name]
        longest = next((run for run in keepers if _keeps(run, first)), None)
        if longest is not None:
            starts[name] = PlannedStart(longest, first.config.budget.end)
    return starts


def _keeps(run: PlannedRun, first: PlannedRun) -> bool:
    """Whether a run keeps a checkpoint in its last phase that is the end of a beginning."""
    budget, end = run.config.budget, first.config.budget.end
    if (run.sampler, run.goal_space, run.seed) != (first.sampler, first.goal_space, first.seed):
        return False  # the cheapest check first
    if budget.unit == "episodes" and end % budget.practice_window:
        return False  # a row of practice.csv would span it
    last = phases_of(run.config)[-1]
    if end % budget.keep_every or not last.begins < end < budget.end:
        return False
    return identity(truncated(run.config, end)) == first.identity


def load_experiment(values: Mapping[str, Any]) -> ExperimentConfig:
    """Validate an experiment's configuration, after loading the files under `modules`.

    Whether its language models exist is checked by `check_models`.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"config: {shown(values)} is not a mapping of keys to values")
    load_modules(values.get("modules", ()))
    experiment = validated(ExperimentConfig, dict(values))
    _resolve_layer(experiment, [experiment.overrides], "overrides")
    configs: dict[str, RunConfig] = {}
    for name, layer in experiment.variants.items():
        if not re.fullmatch(VARIANT_PATTERN, name):
            allowed = "letters, digits, _ . and -, a letter or digit first"
            raise InputError(f"variants: name {shown(name)} is not allowed; allowed: {allowed}")
        layers = [experiment.overrides, layer]
        configs[name] = _resolve_layer(experiment, layers, f"variants.{name}")
    _check_variants(configs)
    return experiment


def check_models(experiment: ExperimentConfig) -> None:
    """Check that the language models of an experiment exist, or that the workflow builds them.

    Raises:
        InputError: one is missing or invalid.
    """
    for config in _resolved(experiment):
        check_planned_backbone(config.backbone.model)
        for section, settings in chats_of(config):
            check_chat(settings, section, planned=True)


def models_of(experiment: ExperimentConfig) -> list[str]:
    """Return the distinct values of `backbone.model` of an experiment's runs."""
    return list(dict.fromkeys(config.backbone.model for config in _resolved(experiment)))


def chats_of(config: RunConfig) -> list[tuple[str, ChatSettings]]:
    """Return the chat models that a run asks, by section: its samplers' and its evaluator's."""
    specs = (SAMPLERS[phase.sampler] for phase in phases_of(config))
    used = {spec.section: config.constants(spec) for spec in specs}
    if config.rewards.model != WORLD:
        used["rewards"] = config.rewards
    return [(name, values) for name, values in used.items() if isinstance(values, ChatSettings)]


def asked_models(config: RunConfig) -> set[str]:
    """Return the language models that a run reads or asks."""
    chats = {settings.model for _, settings in chats_of(config) if not settings.transcript}
    return {config.backbone.model, *chats}


def _resolved(experiment: ExperimentConfig) -> Iterator[RunConfig]:
    """Configurations of the samplers and variants, without goal spaces and seeds."""
    for layer, sampler in itertools.product(variants_of(experiment).values(), experiment.samplers):
        yield _resolve(experiment, [{"sampler": sampler}, experiment.overrides, layer])


def _resolve(experiment: ExperimentConfig, layers: Sequence[Mapping[str, Any]]) -> RunConfig:
    return resolve_run(experiment.preset, [experiment.common, *layers])


def _resolve_layer(
    experiment: ExperimentConfig, layers: Sequence[Mapping[str, Any]], where: str
) -> RunConfig:
    for key, value in layers[-1].items():
        if key in GRID_KEYS:
            raise InputError(
                f"{where}.{key}: {shown(value)} is not allowed: the experiment sets it; "
                f"allowed here: observers, phases, {', '.join(sections())}"
            )
    try:
        configs = [_resolve(experiment, [{"sampler": s}, *layers]) for s in experiment.samplers]
        return configs[0]
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def _check_variants(variants: Mapping[str, RunConfig]) -> None:
    """Refuse variants with the same values, or that cannot be compared at the same points."""
    names: dict[str, str] = {}
    first: dict[str, tuple[str, object]] = {}
    for name, config in variants.items():
        same = names.setdefault(config.model_dump_json(), name)
        if same != name:
            raise InputError(
                f"variants.{name}: is the same as variants.{same}; allowed: a difference "
                "in the value of a key"
            )
        for key, value in _points(config).items():
            other, expected = first.setdefault(key, (name, value))
            if value != expected:
                raise InputError(
                    f"variants.{name}.budget: {key} is {value}, and {expected} for "
                    f"variants.{other}; allowed: the same for all runs of an experiment"
                )


def _points(config: RunConfig) -> dict[str, object]:
    """Return what decides at which points a run is evaluated, by name: one x axis for figures."""
    budget = config.budget
    points: dict[str, object] = {"unit": budget.unit}
    points["length of the last phase"] = budget.end - phases_of(config)[-1].begins
    keys = ["evaluate_every", "evaluation_goals"]
    if budget.unit == "episodes":
        keys.append("practice_window")
    return points | {key: getattr(budget, key) for key in keys}


def given_keys(experiment: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """Return the flat keys that an experiment's manifest sets for the runs of a variant."""
    changes = (experiment.get("variants") or {}).get(variant) or {}
    return flat_keys(merged(experiment.get("overrides") or {}, changes))


ON_CPU, ON_GPU = 2000, 4000
"""MB besides the model: libraries (larger for GPUs), goals, replay."""


def host_memory_mb(config: RunConfig, parameters: int) -> int:
    """Return the MB of host memory, not GPU memory, that a run requests from a cluster.

    On a CPU: weights, adapters and activations of a batch, measured with zoo-mini and with a model
    of 248 million parameters (docs/speed.md). With a GPU, calculated: the weights are loaded in
    float32, twice for `merged`. `auto` may find no GPU, and requests as for a CPU (docs/slurm.md).

    parameters: number of the model's weights.
    """
    merged, batch = config.backbone.lora_mode == "merged", config.agent.batch_size
    if config.backend.device.startswith("cuda"):
        return ON_GPU + round(parameters / 1e6 * (8 if merged else 4))
    bytes_per_weight = 15 + 0.2 * batch if merged else 6 + 0.5 * batch
    return ON_CPU + round(parameters / 1e6 * bytes_per_weight)
