"""Translate a configuration in the style of the paper's repository to ours.

`lamorel_args` is lamorel's own section, `rl_script_args` has the names below. Other keys are
refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magellan.backends.lamorel.section import LAMOREL, Servers, allow, read_servers
from magellan.config import RunConfig, resolve_run
from magellan.config.resolve import nested
from magellan.core.errors import InputError, shown

SCRIPT = "rl_script_args"
MISSING = "???"
"""Hydra's placeholder for a value that the command line must give."""

NAMES: Mapping[str, str] = {
    "goal_sampler": "sampler",
    "seed": "seed",
    "number_envs": "agent.num_envs",
    "update_freq": "agent.steps_per_update",
    "buffer_size": "agent.replay_capacity",
    "batch_size": "agent.batch_size",
    "gradient_batch_size": "backend.micro_batch",
    "lr": "agent.learning_rate",
    "gamma": "agent.gamma",
    "n_step": "agent.n_step",
    "polyak": "agent.polyak",
    "alpha_lr": "agent.temperature_learning_rate",
    "actor_warmup": "agent.actor_warmup_updates",
    "lora_r": "backbone.lora_rank",
    "lora_alpha": "backbone.lora_alpha",
    "epsilon_start": "samplers.epsilon_start",
    "epsilon_end": "samplers.epsilon_end",
    "epsilon_decay": "samplers.epsilon_decay",
    "sr_lr": "competence.learning_rate",
    "sr_batch_size": "competence.batch_size",
    "sr_buffer_size": "competence.buffer",
    "recompute_freq": "competence.refresh",
    "delay": "competence.delay",
    "lp_threshold": "magellan.lp_threshold",
    "nb_episodes": "budget.episodes",
    "test_freq": "budget.evaluate_every",
    "nb_test_goals": "budget.evaluation_goals",
    "save_freq": "budget.keep_every",
}
"""Name in `rl_script_args` -> our key."""

FIXED: Mapping[str, Any] = {
    "use_lora": True,
    "train_llm": True,
    "sr_adapters": "sr_adapters",
    "use_value": False,
    "adaptation_test": False,
}
"""Names in `rl_script_args` with a single supported value."""

PATH = "--config-path"
"""Hydra's option for the folder of configurations."""
OWN = ("path", "output_dir", "loading_path", "preset", "goals_distribution", "alpha", "config")


@dataclass(frozen=True)
class Launch:
    """The task of a launcher process.

    Attributes:
        config: of the run.
        output: folder of the run.
        loading: folder with the checkpoint to resume from; None: a new run.
        servers: processes that hold the model, and the model that lamorel loads there.
        lamorel_args: lamorel's own section.
    """

    config: RunConfig
    output: Path
    loading: Path | None
    servers: Servers
    lamorel_args: Mapping[str, Any]


def from_here(arguments: list[str]) -> list[str]:
    """The launcher's arguments, with an absolute folder of configurations.

    Hydra would resolve a relative one beside the program, not in the working folder.
    """
    absolute = list(arguments)
    for index, argument in enumerate(absolute):
        if argument == PATH and index + 1 < len(absolute):
            absolute[index + 1] = os.path.abspath(absolute[index + 1])
        elif argument.startswith(f"{PATH}="):
            absolute[index] = f"{PATH}={os.path.abspath(argument.partition('=')[2])}"
    return absolute


def read(values: Mapping[str, Any]) -> Launch:
    """Read a launch from Hydra's configuration as plain values.

    Raises:
        InputError: one line with the key, its value and what is allowed.
    """
    lamorel = _mapping(values.get(LAMOREL), LAMOREL)
    given = _mapping(values.get(SCRIPT), SCRIPT)
    script = {key: value for key, value in given.items() if value not in (None, MISSING)}
    allowed_keys = {*NAMES, *OWN, *FIXED}
    for key in script:
        if key not in allowed_keys:
            raise InputError(
                f"{SCRIPT}.{key}: unknown key; allowed: {', '.join(sorted(allowed_keys))}; "
                f"any other key of a run under {SCRIPT}.config"
            )
    for key, allowed in FIXED.items():
        allow(script, key, allowed, SCRIPT)
    servers = read_servers(lamorel)
    if "output_dir" not in script:
        raise InputError(f"{SCRIPT}.output_dir: key is missing; allowed: a folder for the run")
    preset = str(script.get("preset", "paper"))
    config = resolve_run(preset, [*_layers(script), _model_layer(servers)])
    loading = script.get("loading_path")
    return Launch(
        config,
        Path(str(script["output_dir"])),
        None if loading is None else Path(str(loading)),
        servers,
        lamorel,
    )


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: {shown(value)} is not a mapping of keys to values")
    return value


def _model_layer(servers: Servers) -> dict[str, Any]:
    """Layer with the model and device of lamorel's section."""
    backend = {"kind": "lamorel", "device": "cuda" if servers.on_gpu else "cpu"}
    return {"backbone": {"model": servers.model}, "backend": backend}


def _layers(script: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Layers of a run's configuration; later ones override earlier ones."""
    layers: list[Mapping[str, Any]] = []
    for key, value in script.items():
        if key in NAMES:
            layers.append(nested(NAMES[key].split("."), value))
        elif key == "goals_distribution":  # a number of goals per category, or a name
            mix = value if isinstance(value, list | tuple) else [value]
            layers.append({"goal_space": "-".join(map(str, mix))})
        elif key == "alpha":
            layers.append({"agent": _temperature(value)})
    return [*layers, _own_keys(script)]


def _own_keys(script: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of our own configuration, without `model` and `kind`."""
    layer = _mapping(script.get("config", {}), f"{SCRIPT}.config")
    for key in ("backend", "backbone"):
        if {"kind", "model"} & set(_mapping(layer.get(key) or {}, f"{SCRIPT}.config.{key}")):
            raise InputError(
                f"{SCRIPT}.config.{key}: model and kind are not allowed here: {LAMOREL} says them"
            )
    return layer


def _temperature(value: Any) -> dict[str, Any]:
    """`auto`: trained with the released rule; a number: fixed."""
    if value == "auto":
        return {"temperature": "released"}
    return {"temperature": "fixed", "temperature_initial": value}
