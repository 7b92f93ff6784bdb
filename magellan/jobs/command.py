"""Command line of `python -m magellan train`, without torch."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from magellan.config import RunConfig, identity, parse_assignment, read_yaml, resolve_run
from magellan.config.presets import DEFAULT, PRESETS
from magellan.core.arguments import (
    FOLDER,
    MODULES,
    SET,
    Option,
    command,
    flag,
    option,
    path,
    whole_number,
)
from magellan.core.environment import prepare_threads
from magellan.core.errors import InputError
from magellan.jobs.log import show
from magellan.jobs.provenance import check_worth_trying
from magellan.model.files import check_backbone
from magellan.model.settings import BackendConfig
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS

NAMED = ("sampler", "world", "goal_space", "seed", "threads")


DEFAULTS = RunConfig()


def named(name: str, of: str) -> Option:
    """An option for a key of a run."""
    default = getattr(DEFAULTS, name)
    return option(
        f"--{name.replace('_', '-')}",
        type=whole_number if isinstance(default, int) else str,
        help=f"{of} (default: {default}, unless --config or --set sets it)",
    )


def backend(otherwise: str) -> tuple[Option, Option]:
    """Options for device and number format; `otherwise` qualifies the default in the help."""
    device = "cpu, cuda, cuda:1 and so on, or auto: cuda if there is a GPU"
    dtype = "number format of the frozen model, float32 or bfloat16"
    ends = BackendConfig()
    return (
        option("--device", help=f"{device} (default: {ends.device}, {otherwise})"),
        option("--dtype", help=f"{dtype} (default: {ends.dtype}, {otherwise})"),
    )


def backend_given(options: argparse.Namespace) -> dict[str, str]:
    """Keys of the section `backend` that the command line sets."""
    return _given(options, ("device", "dtype"))


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@command(
    named("sampler", ", ".join(SAMPLERS)),
    named("world", ", ".join(WORLDS)),
    named("goal_space", "25k, 1M, all, or a mix 20-4-2-2-1"),
    named("seed", "root seed, 0 or more"),
    named("threads", "threads of the numerical libraries"),
    option("--preset", default=DEFAULT, help=", ".join(PRESETS)),
    FOLDER(help="folder of the run"),
    flag("--resume", help="continue from the last checkpoint"),
    option(
        "--stop-after",
        type=float,
        metavar="MINUTES",
        help="time limit: save and stop shortly before it, exit status 75",
    ),
    path(
        "--start",
        metavar="FOLDER",
        help="folder of a run with all phases of this one but the last: continue from its end; or "
        "a checkpoint that a longer run has kept there, RUN/10000 (default: from the first phase)",
    ),
    option(
        "--identity",
        help="train only if the run has this identity; set by the workflow (default: any run)",
    ),
    option(
        "--attempt",
        type=int,
        default=1,
        metavar="N",
        help="number of this attempt; from the second on, end at once with the same error if the "
        "run cannot succeed; set by the workflow",
    ),
    option(
        "--progress",
        choices=("bar", "lines", "none"),
        default="bar",
        help="display during training; without a terminal, bar means lines",
    ),
    option(
        "--log",
        choices=("none", "tensorboard"),
        default="none",
        help="also write curves to the run's folder tensorboard",
    ),
    *backend("unless --config or --set sets it"),
    MODULES,
    path("--config", help="YAML file with keys of the run configuration"),
    SET(help="override one key, such as agent.learning_rate=1e-3; may be repeated"),
)
def _train(options: argparse.Namespace) -> None:
    """One training run."""
    layers = [read_yaml(options.config)] if options.config else []
    layers += [parse_assignment(text) for text in options.set]
    if options.module:
        named: Any = next((layer["modules"] for layer in layers[::-1] if "modules" in layer), [])
        layers.append({"modules": named + options.module if isinstance(named, list) else named})
    layers += [_given(options, NAMED), {"backend": backend_given(options)}]
    config = resolve_run(options.preset, layers)
    if options.identity not in (None, identity(config)):
        raise InputError(
            f"--identity: {options.identity!r} is not this run, which is {identity(config)}; did "
            "the code or a file under modules change since the workflow was started?"
        )
    check_backbone(config.backbone.model)  # before the imports, which take seconds
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
    by_hand = options.progress != "none" and options.identity is None  # not in the workflow
    if by_hand and not WORLDS[config.world].answer_tokens:
        _show_next(options.output, config.modules)


def _show_next(run: Path, modules: Sequence[str]) -> None:
    own = [word for path in modules for word in ("--module", path)]
    agent = Path("agents") / run.name
    for words in (["watch", str(run), *own], ["export", str(run), *own, "--output", str(agent)]):
        show(f"next: python -m magellan {shlex.join(words)}")
