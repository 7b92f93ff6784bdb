"""One of the launcher's processes: the run itself, or a server of its model."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magellan.backends.lamorel.section import Servers, at, check_version
from magellan.config import RunConfig, check_backbone, flat_keys, phases_of
from magellan.core.environment import prepare_threads
from magellan.core.errors import (
    InputError,
    JobError,
    StoppedEarly,
    is_out_of_memory,
    out_of_memory,
    shown,
)
from magellan.core.parsing import read_json_object
from magellan.launcher.arguments import SCRIPT, read
from magellan.worlds import WORLDS

LOADING = f"{SCRIPT}.loading_path"
OBEYED = {
    "auto_map": "code of its own, which lamorel would run",
    "attn_implementation": "kernels by name, which lamorel would fetch and run",
    "_attn_implementation": "kernels by name, which lamorel would fetch and run",
}
"""Keys of a model's files that a local run never follows."""


def run(values: Mapping[str, Any]) -> int:
    """Train, or serve until the run has ended; gives the exit status.

    A run that was asked to stop has saved its state, and ends with 0: the launcher would bury any
    other status under a page of traceback.

    values: Hydra's configuration as plain values.
    """
    try:
        _run(values)
    except StoppedEarly as error:
        _told(error, values)
    except (InputError, JobError) as error:
        return _told(error, values)
    except Exception as error:
        if is_out_of_memory(error):
            return _told(out_of_memory(error), values)
        if _is_trainer() or "gloo" not in str(error):
            raise
        return JobError.exit_status  # a server whose line is cut: the trainer says so
    return 0


def _told(error: InputError | JobError, values: Mapping[str, Any]) -> int:
    """Have the trainer print the line; gives the exit status."""
    if _is_trainer():
        line = _in_words_of_here(str(error), at(values, f"{SCRIPT}.output_dir"))
        print(f"{error.label}: {line}", file=sys.stderr, flush=True)
    return error.exit_status


def _in_words_of_here(line: str, output: Any) -> str:
    """Options of `python -m magellan train` as a launcher's command has them."""
    words = {
        "--resume:": f"{LOADING}:",
        "--resume": f"{LOADING}={output}",
        "--output": f"{SCRIPT}.output_dir",
    }
    for option, here in words.items():
        line = line.replace(option, here)
    return line


def _is_trainer() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _run(values: Mapping[str, Any]) -> None:
    launch = read(values)
    config = launch.config
    check_version(launch.servers.layout)
    _check_processes()
    folder = check_backbone(config.backbone.model)
    prepare_threads(config.threads)
    _check_model(folder, launch.servers)
    _check_gpus(config.backend.device, config.backend.dtype, launch.servers)
    resume = _is_trainer() and resumes(config, launch.output, launch.loading)
    from magellan.backends.lamorel.connection import connect
    from magellan.backends.lamorel.serving import Served
    from magellan.core.randomness import initial_seeds
    from magellan.jobs.run import train

    adapters = initial_seeds(phases_of(config)[0].seed)[0]
    world = WORLDS[config.world]
    served = Served(config.backbone, config.backend, adapters, world, config.threads)
    with contextlib.closing(connect(launch.lamorel_args, launch.servers, served)) as backend:
        train(config, launch.output, resume, "lines", backend=backend)


def _check_processes() -> None:
    """Only lamorel's launcher starts what this needs."""
    if "RANK" not in os.environ:
        raise InputError(
            "magellan/main.py: started by itself; allowed: python -m lamorel_launcher.launch "
            f"--config-path ... --config-name ... {SCRIPT}.path=magellan/main.py (docs/lamorel.md)"
        )


def _check_model(folder: Path, servers: Servers) -> None:
    """lamorel loads a model as what its configuration says; another one ends in a traceback.

    It also lets Python run that the folder brings along or names, as a local run never does.
    """
    from magellan.model.saving import is_encoder_decoder

    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        values = flat_keys(read_json_object(path)) if path.is_file() else {}
        for key, means in OBEYED.items():
            if any(key in place.split(".") for place, value in values.items() if value):
                raise InputError(
                    f"{servers.model_key}: {shown(servers.model)} has {key} in {name}, {means}; "
                    "allowed: a model without"
                )
    found = "seq2seq" if is_encoder_decoder(folder) else "causal"
    if servers.model_type != found:
        raise InputError(
            f"{servers.type_key}: {servers.model_type!r} is not allowed for the model in "
            f"{folder}; allowed: {found}"
        )


def _check_gpus(device: str, dtype: str, servers: Servers) -> None:
    """lamorel gives each server a GPU of its own, and fails where there is none left."""
    import torch

    from magellan.model.devices import check_format, find_device

    check_format(find_device(device), dtype)
    if find_device(device).type == "cuda" and servers.number > torch.cuda.device_count():
        raise InputError(
            f"{servers.number_key}: {servers.number} is not allowed with "
            f"{torch.cuda.device_count()} GPUs; allowed: a GPU for each"
        )


def resumes(config: RunConfig, output: Path, loading: Path | None) -> bool:
    """Whether the run goes on from a checkpoint, which then is the newest one in its folder.

    Args:
        config: of the run.
        output: its folder.
        loading: the run's own folder, to go on from its newest checkpoint; or one with a checkpoint
            of this run, such as `outputs/magellan/10000`; None: it begins.

    Raises:
        InputError: there is no checkpoint of this run.
        LockedError: another process works in the run's folder.
    """
    from magellan.jobs.checkpoint import FOLDER, Checkpoints
    from magellan.jobs.folder import FolderLock, check_folder, held

    if loading is None:
        return False
    check_folder(loading, LOADING)
    if not Checkpoints(loading, config, own=False, argument=LOADING).paths():
        raise InputError(
            f"{LOADING}: {loading} holds no checkpoint; allowed: the folder of a run, or one such "
            f"as {output}/10000, with files in {FOLDER}/"
        )
    if loading.resolve() == output.resolve():
        return True
    check_folder(output, f"{SCRIPT}.output_dir")
    found = Checkpoints(loading, config, own=False, argument=LOADING).load()
    assert found is not None
    with held(FolderLock(output)):
        Checkpoints(output, config).save(found.state)
    return True
