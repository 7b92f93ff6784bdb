"""Configuration: schema, presets, identity of a run, and the grid of an experiment.

A run's manifest holds its resolved configuration. No torch here: the workflow imports this package.
"""

from magellan.config.grid import PlannedRun, grid, load_experiment
from magellan.config.identity import counted, flat_keys, hash_of, identity, own_code_of
from magellan.config.phases import Phase, beginning, estimators_of, phases_of
from magellan.config.resolve import (
    checked_run,
    parse_assignment,
    read_yaml,
    resolve_run,
    stored_config,
)
from magellan.config.schema import UNIT_COLUMNS, RunConfig, run_model

__all__ = [
    "UNIT_COLUMNS",
    "Phase",
    "PlannedRun",
    "RunConfig",
    "beginning",
    "checked_run",
    "counted",
    "estimators_of",
    "flat_keys",
    "grid",
    "hash_of",
    "identity",
    "load_experiment",
    "own_code_of",
    "parse_assignment",
    "phases_of",
    "read_yaml",
    "resolve_run",
    "run_model",
    "stored_config",
]
