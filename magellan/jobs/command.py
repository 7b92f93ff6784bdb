"""`python -m magellan train`: its command line. Nothing here imports torch."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from magellan.config import (
    PRESETS,
    BackendConfig,
    RunConfig,
    check_backbone,
    identity,
    parse_assignment,
    read_yaml,
    resolve_run,
    sampler_names,
)
from magellan.core.arguments import (
    Commands,
    add_modules,
    add_output,
    add_settings,
    file_path,
    whole_number,
)
from magellan.core.environment import prepare_threads
from magellan.core.errors import InputError
from magellan.jobs.attempts import check_worth_trying
from magellan.jobs.log import show
from magellan.worlds import WORLDS

NAMED = ("sampler", "world", "goal_space", "seed", "threads")


def add_train(commands: Commands) -> None:
    train = commands.add_parser("train", help="one training run")
    defaults = RunConfig()
    for name, values in (
        ("sampler", ", ".join(sampler_names())),
        ("world", ", ".join(WORLDS)),
        ("goal_space", "25k, 1M, all, or a mix 20-4-2-2-1"),
        ("seed", "root seed, 0 or more"),
        ("threads", "threads of the numerical libraries"),
    ):
        default = getattr(defaults, name)
        train.add_argument(
            f"--{name.replace('_', '-')}",
            type=whole_number if isinstance(default, int) else str,
            help=f"{values} (default: {default}, unless --config or --set says)",
        )
    _add_job(train)
    add_backend(train, "unless --config or --set says")
    add_modules(train)
    train.add_argument(
        "--config",
        type=file_path,
        help="YAML file with keys of the run configuration (default: none)",
    )
    add_settings(train, "override one key, such as agent.learning_rate=1e-3")
    train.set_defaults(command=_train)


def _add_job(train: argparse.ArgumentParser) -> None:
    """What the run starts from, where it goes, and what is seen of it."""
    presets = ", ".join(PRESETS)
    train.add_argument("--preset", default="laptop", help=f"{presets} (default: %(default)s)")
    add_output(train, "folder of the run")
    train.add_argument(
        "--resume", action="store_true", help="continue from the last checkpoint (default: no)"
    )
    train.add_argument(
        "--stop-after",
        type=float,
        metavar="MINUTES",
        help="time limit: save and stop by itself shortly before, exit status 75 (default: none)",
    )
    train.add_argument(
        "--start",
        type=file_path,
        metavar="FOLDER",
        help="folder of a run with all phases of this one but the last: go on where it ended; or "
        "what a longer run has kept there, RUN/10000 (default: from the first phase)",
    )
    train.add_argument(
        "--identity",
        help="refuse to train unless the run is this one; the workflow says so (default: any run)",
    )
    train.add_argument(
        "--attempt",
        type=int,
        default=1,
        metavar="N",
        help="which attempt of one call this is; the second and later ones end at once, with the "
        "same error, if the run cannot succeed; the workflow says so (default: %(default)s)",
    )
    train.add_argument(
        "--progress",
        choices=("bar", "lines", "none"),
        default="bar",
        help="what is shown while it trains; without a terminal a bar is lines (default: "
        "%(default)s)",
    )
    train.add_argument(
        "--log",
        choices=("none", "tensorboard"),
        default="none",
        help="also write curves to the run's folder tensorboard (default: %(default)s)",
    )


def add_backend(command: argparse.ArgumentParser, otherwise: str) -> None:
    defaults = BackendConfig()
    for name, values in (
        ("device", "cpu, cuda, cuda:1 and so on, or auto: cuda where there is a GPU"),
        ("dtype", "numbers of the frozen model, float32 or bfloat16"),
    ):
        default = getattr(defaults, name)
        command.add_argument(f"--{name}", help=f"{values} (default: {default}, {otherwise})")


def backend_given(options: argparse.Namespace) -> dict[str, str]:
    """Keys of the section `backend` that the command line gives."""
    given = {name: getattr(options, name) for name in ("device", "dtype")}
    return {name: value for name, value in given.items() if value is not None}


def _train(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in NAMED}
    named = {name: value for name, value in given.items() if value is not None}
    layers = [read_yaml(options.config)] if options.config else []
    layers += [parse_assignment(text) for text in options.set]
    if options.module:
        layers.append({"modules": options.module})
    config = resolve_run(options.preset, [*layers, named, {"backend": backend_given(options)}])
    if options.identity not in (None, identity(config)):
        raise InputError(
            f"--identity: {options.identity!r} is not this run, which is {identity(config)}; did "
            "the code or a file under modules change since the workflow was started?"
        )
    check_backbone(config.backbone.model)  # before the libraries are loaded, which takes seconds
    if options.attempt > 1:
        check_worth_trying(options.output, identity(config))
    prepare_threads(config.threads)
    from magellan.jobs.run import train

    train(
        config,
        options.output,
        options.resume,
        options.progress,
        options.stop_after,
        options.log,
        options.start,
    )
    if options.progress != "none" and options.identity is None:  # the workflow goes on by itself
        _show_next(options.output, config.modules)


def _show_next(run: Path, modules: Sequence[str]) -> None:
    """What can be done with a run that is complete."""
    own = [word for path in modules for word in ("--module", path)]
    agent = Path("agents") / run.name
    for words in (["watch", str(run), *own], ["export", str(run), *own, "--output", str(agent)]):
        show(f"next: python -m magellan {shlex.join(words)}")
