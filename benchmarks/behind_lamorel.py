"""Rounds of one run in this process and behind lamorel's servers, in turn: docs/lamorel.md.

    .venv-lamorel/bin/python -m lamorel_launcher.launch --config-path $PWD/config/little_zoo \\
        --config-name local_cpu_config_magellan \\
        rl_script_args.path=$PWD/benchmarks/behind_lamorel.py rl_script_args.output_dir=/tmp/x

Prints environment steps per second of wall time, and processor seconds of all processes together.
Wall time is that of a machine with nothing else to do, or of no use.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WARM, TIMED, TURNS = 3, 6, 3


def main(values: Mapping[str, Any]) -> None:
    """In a server this serves until the end."""
    from magellan.backends.lamorel.connection import connect
    from magellan.backends.lamorel.serving import Served
    from magellan.backends.machine import settle
    from magellan.config import resolve_run
    from magellan.launcher.arguments import read
    from magellan.training.loop import Trainer
    from magellan.worlds import WORLDS

    launch = read(values)
    config = launch.config
    served = Served(config.backbone, config.backend, 0, WORLDS[config.world], config.threads)
    backend = connect(launch.lamorel_args, launch.servers, served)
    settle(config.threads)
    same = config.model_dump(mode="json") | {"backend": {}}
    usual = same | {"backbone": {**same["backbone"], "lora_mode": "merged", "passes": "auto"}}
    trainers = {"behind lamorel": Trainer(config, backend)}
    for name, layer in (("local, the same passes", same), ("local, the usual passes", usual)):
        trainers[name] = Trainer(resolve_run(config.preset, [layer]))
    _report(trainers)
    backend.close()


def _report(trainers: Mapping[str, Any]) -> None:
    """A line for each, from several turns; each turn goes on where the one before ended."""
    for trainer in trainers.values():
        while trainer.updates < WARM:
            trainer.advance()
    spent = {name: [0, 0.0, 0.0] for name in trainers}
    for _ in range(TURNS):
        for name, trainer in trainers.items():
            begun = trainer.steps, time.perf_counter(), _processor_seconds()
            for _ in range(TIMED):
                trainer.advance()
            ended = trainer.steps, time.perf_counter(), _processor_seconds()
            spent[name] = [a + c - b for a, b, c in zip(spent[name], begun, ended, strict=True)]
    for name, (steps, wall, processor) in spent.items():
        print(
            f"{name}: {trainers[name].backend.passes}; {steps} steps, {steps / wall:.1f} steps/s, "
            f"{1000 * processor / steps:.2f} ms of processor time a step",
            flush=True,
        )


def _processor_seconds() -> float:
    """Of all processes that the launcher has started."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == os.getppid():
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    import hydra
    from omegaconf import OmegaConf

    hydra.main(config_path=None, config_name=None, version_base="1.3")(
        lambda config: main(OmegaConf.to_container(config, resolve=True))
    )()
