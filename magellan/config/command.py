"""Commands `python -m magellan schema` and `check`."""

from __future__ import annotations

import argparse
import json

from magellan.config import grid, load_experiment, read_yaml
from magellan.config.grid import check_models
from magellan.config.modules import refuse_modules
from magellan.config.resolve import check_named, experiment_schema
from magellan.core.arguments import Commands, file_path


def add_check(commands: Commands) -> None:
    """Add the commands `check` and `schema`."""
    schema = commands.add_parser("schema", help="print the JSON schema of an experiment file")
    schema.set_defaults(command=_schema)
    check = commands.add_parser("check", help="check an experiment file and list its runs")
    check.add_argument("config", type=file_path, help="YAML file, such as config/config.yaml")
    check.add_argument(
        "--run-modules",
        action="store_true",
        help="run the files under its key modules, as needed to check it (default: no)",
    )
    check.set_defaults(command=_check)


def _schema(_: argparse.Namespace) -> None:
    print(json.dumps(experiment_schema(), indent=2))


def _check(options: argparse.Namespace) -> None:
    values = read_yaml(options.config)
    if not options.run_modules:
        refuse_modules(values.get("modules"))
    experiment = load_experiment(values)
    check_models(experiment)
    check_named(values, f"config file: {options.config}")
    for run in grid(experiment):
        variant = f"/{run.variant}" if experiment.variants else ""
        print(f"{run.sampler}{variant}/{run.goal_space}/seed{run.seed}")
