"""Configuration: schema, presets, identity of a run, and the grid of an experiment.

A run's manifest holds its resolved configuration. No torch here: the workflow imports this package.
"""

from magellan.config.grid import (
    BEGINNING,
    PlannedRun,
    PlannedStart,
    check_models,
    given_keys,
    grid,
    host_memory_mb,
    load_experiment,
    models_of,
    run_path,
    shared_beginnings,
    variants_of,
)
from magellan.config.identity import (
    OPERATIONAL,
    counted,
    estimators_of,
    flat_keys,
    hash_of,
    identity,
    own_code_of,
)
from magellan.config.phases import HEAD, Phase, beginning, driver_of, phases_of, truncated
from magellan.config.presets import PRESETS
from magellan.config.resolve import (
    check_named,
    checked_run,
    experiment_schema,
    parse_assignment,
    read_yaml,
    resolve_run,
    sampler_names,
    stored_config,
)
from magellan.config.schema import (
    PLAIN,
    UNIT_COLUMNS,
    AnalysisConfig,
    ExperimentConfig,
    RunConfig,
    Unit,
    run_model,
    sections,
)
from magellan.model.files import backbone_folder, check_backbone
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig

__all__ = [
    "BEGINNING",
    "HEAD",
    "OPERATIONAL",
    "PLAIN",
    "PRESETS",
    "UNIT_COLUMNS",
    "AgentConfig",
    "AnalysisConfig",
    "BackboneConfig",
    "BackendConfig",
    "ExperimentConfig",
    "Phase",
    "PlannedRun",
    "PlannedStart",
    "RunConfig",
    "Unit",
    "backbone_folder",
    "beginning",
    "check_backbone",
    "check_models",
    "check_named",
    "checked_run",
    "counted",
    "driver_of",
    "estimators_of",
    "experiment_schema",
    "flat_keys",
    "given_keys",
    "grid",
    "hash_of",
    "host_memory_mb",
    "identity",
    "load_experiment",
    "models_of",
    "own_code_of",
    "parse_assignment",
    "phases_of",
    "read_yaml",
    "resolve_run",
    "run_model",
    "run_path",
    "sampler_names",
    "sections",
    "shared_beginnings",
    "stored_config",
    "truncated",
    "variants_of",
]
