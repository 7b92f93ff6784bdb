"""One of the launcher's processes: the run itself, or a server of its model."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from magellan.backends.lamorel.section import Servers, at
from magellan.config import RunConfig, phases_of
from magellan.core.environment import prepare_threads
from magellan.core.errors import (
    InputError,
    JobError,
    StoppedEarly,
    is_out_of_memory,
    not_allowed,
    out_of_memory,
    shown,
)
from magellan.core.parsing import read_json_object
from magellan.launcher.arguments import SCRIPT, from_here, read
from magellan.model.files import check_backbone
from magellan.worlds import WORLDS

LOADING, OUTPUT = f"{SCRIPT}.loading_path", f"{SCRIPT}.output_dir"
OBEYED = {
    "auto_map": "code of its own, which lamorel would run",
    "attn_implementation": "kernels by name, which lamorel would fetch and run",
    "_attn_implementation": "kernels by name, which lamorel would fetch and run",
}
"""Keys of a model's files that lamorel obeys and a local run ignores."""


def main() -> None:
    """Run with Hydra's configuration as plain values, and exit."""
    import hydra
    from omegaconf import OmegaConf

    def task(config: Any) -> None:
        sys.exit(run(OmegaConf.to_container(config, resolve=True)))

    sys.argv = from_here(sys.argv)
    hydra.main(config_path=None, config_name=None, version_base="1.3")(task)()


def run(values: Mapping[str, Any]) -> int:
    """Train, or serve until the run ends; returns the exit status.

    A run that was stopped has saved its state and exits with 0: for any other status the launcher
    prints a page of traceback.

    values: Hydra's configuration as plain values.
    """
    try:
        _run(values)
    except StoppedEarly as error:
        _report(error, values)
    except (InputError, JobError) as error:
        return _report(error, values)
    except Exception as error:
        if is_out_of_memory(error):
            return _report(out_of_memory(error), values)
        if _is_trainer() or "gloo" not in str(error):
            raise
        return JobError.exit_status  # a server that lost its connection: the trainer reports it
    return 0


def _report(error: InputError | JobError, values: Mapping[str, Any]) -> int:
    if _is_trainer():
        # The launcher's keys, instead of options of `python -m magellan train`.
        line = str(error).replace("--resume:", f"{LOADING}:")
        line = line.replace("--resume", f"{LOADING}={at(values, OUTPUT)}")
        line = line.replace("--output", OUTPUT)
        print(f"{error.label}: {line}", file=sys.stderr, flush=True)
    return error.exit_status


def _is_trainer() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _run(values: Mapping[str, Any]) -> None:
    launch = read(values)
    config = launch.config
    if "RANK" not in os.environ:  # lamorel's launcher sets it
        raise InputError(
            "magellan/lamorel_main.py: started by itself; allowed: python -m "
            f"lamorel_launcher.launch ... {SCRIPT}.path=magellan/lamorel_main.py (docs/lamorel.md)"
        )
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


def _given(values: Mapping[str, Any]) -> Iterator[str]:
    """Names of all keys, at any depth, whose values are not empty."""
    for key, value in values.items():
        if value:
            yield key
        if isinstance(value, Mapping):
            yield from _given(value)


def _check_model(folder: Path, servers: Servers) -> None:
    """Refuse a model whose type differs from lamorel's section, or whose files name code to run.

    lamorel would fail with a traceback for the former and run the latter, as no local run does.
    """
    from magellan.model.saving import is_encoder_decoder

    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        given = set(_given(read_json_object(path))) if path.is_file() else set()
        for key, effect in OBEYED.items():
            if key in given:
                raise InputError(
                    f"{servers.model_key}: {shown(servers.model)} has {key} in {name}, {effect}; "
                    "allowed: a model without"
                )
    model_type = "seq2seq" if is_encoder_decoder(folder) else "causal"
    if servers.model_type != model_type:
        why = f" for the model in {folder}"
        raise not_allowed(servers.type_key, servers.model_type, model_type, why)


def _check_gpus(device: str, dtype: str, servers: Servers) -> None:
    """Raise InputError if there are fewer GPUs than servers, each of which lamorel gives one."""
    import torch

    from magellan.model.devices import check_format, find_device

    check_format(find_device(device), dtype)
    if find_device(device).type == "cuda" and servers.number > torch.cuda.device_count():
        why = f" with {torch.cuda.device_count()} GPUs"
        raise not_allowed(servers.number_key, servers.number, "a GPU for each", why)


def resumes(config: RunConfig, output: Path, loading: Path | None) -> bool:
    """Whether the run resumes from a checkpoint, which is then copied to its folder.

    loading: the run's own folder, to resume from its newest checkpoint; or one with a checkpoint of
        this run, such as `outputs/magellan/10000`; None: a new run.

    Raises:
        InputError: there is no checkpoint of this run.
        LockedError: another process uses the run's folder.
    """
    from magellan.jobs.checkpoint import FOLDER, Checkpoints
    from magellan.jobs.folder import FolderLock, check_folder

    if loading is None:
        return False
    check_folder(loading, LOADING)
    checkpoints = Checkpoints(loading, config, None, LOADING, "name another checkpoint of this run")
    if not checkpoints.paths():
        raise InputError(
            f"{LOADING}: {loading} holds no checkpoint; allowed: the folder of a run, or one such "
            f"as {output}/10000, with files in {FOLDER}/"
        )
    if loading.resolve() == output.resolve():
        return True
    check_folder(output, OUTPUT)
    checkpoint = checkpoints.load()
    assert checkpoint is not None
    with contextlib.closing(FolderLock(output)):
        Checkpoints(output, config).save(checkpoint.state)
    return True
