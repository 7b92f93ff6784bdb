"""Configuration: schema, presets, what a run is, and the grid of an experiment.

The resolved configuration is saved in a run's manifest. No torch here: the workflow imports this.
"""

from magellan.config.grid import (
    BEGINNING,
    PlannedRun,
    PlannedStart,
    check_models,
    configuration,
    given_keys,
    grid,
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
from magellan.config.phases import Phase, beginning, part, phases_of
from magellan.config.presets import PRESETS
from magellan.config.resolve import (
    check_named,
    experiment_schema,
    load_experiment,
    parse_assignment,
    read_yaml,
    resolve_run,
    sampler_names,
)
from magellan.config.schema import (
    PLAIN,
    UNIT_COLUMNS,
    AnalysisConfig,
    BudgetConfig,
    ExperimentConfig,
    GoalConfig,
    RunConfig,
    SamplerConfig,
    Unit,
    run_model,
    sections,
)
from magellan.config.stored import stored_config
from magellan.model.files import backbone_folder, check_backbone
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig

__all__ = [
    "BEGINNING",
    "OPERATIONAL",
    "PLAIN",
    "PRESETS",
    "UNIT_COLUMNS",
    "AgentConfig",
    "AnalysisConfig",
    "BackboneConfig",
    "BackendConfig",
    "BudgetConfig",
    "ExperimentConfig",
    "GoalConfig",
    "Phase",
    "PlannedRun",
    "PlannedStart",
    "RunConfig",
    "SamplerConfig",
    "Unit",
    "backbone_folder",
    "beginning",
    "check_backbone",
    "check_models",
    "check_named",
    "configuration",
    "counted",
    "estimators_of",
    "experiment_schema",
    "flat_keys",
    "given_keys",
    "grid",
    "hash_of",
    "identity",
    "load_experiment",
    "models_of",
    "own_code_of",
    "parse_assignment",
    "part",
    "phases_of",
    "read_yaml",
    "resolve_run",
    "run_model",
    "run_path",
    "sampler_names",
    "sections",
    "shared_beginnings",
    "stored_config",
    "variants_of",
]
