"""lamorel's own section of a configuration, in the layout of its version 0.2 or 0.3.

Version 0.3 lists language models and their processes by name. This suite has one model, of any
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from magellan.core.errors import InputError, not_allowed, shown

LAMOREL = "lamorel_args"
SETUP = "distributed_setup_args"
KINDS = ("causal", "seq2seq")
OLDER, NEWER = "0.2", "0.3"
"""Versions of lamorel with a supported layout."""
FOLDERS = {OLDER: "config/little_zoo", NEWER: "config/little_zoo_v03"}
_MODEL = (
    *("model_type", "model_path", "pretrained", "minibatch_size", "pre_encode_inputs"),
    *("load_in_4bit",),
)
_AFTER_SCORING = ("synchronize_gpus_after_scoring", "empty_cuda_cache_after_scoring")
# A file for one version also has the keys that the other version's launcher requires, so that our
# program starts and can report the wrong version.
_SETUP = ("n_rl_processes", "n_llm_processes", "llm_processes", "multinode")
_TOP = ("log_level", SETUP, "accelerate_args", "llm_args")
KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    OLDER: {
        "": (*_TOP, "gloo_timeout", "allow_subgraph_use_whith_gradient"),
        SETUP: _SETUP,
        "llm_args": (*_MODEL, "seed", "parallelism"),
        "llm_args.parallelism": ("use_gpu", "model_parallelism_size", *_AFTER_SCORING),
    },
    NEWER: {
        "": (*_TOP, "llm_configs"),
        SETUP: (*_SETUP, "backend", "init_timeout", "timeout", "multinode_args"),
        f"{SETUP}.llm_processes.NAME": ("n_processes", "devices_per_process", "ddp_kwargs"),
        "llm_configs.NAME": (
            *(*_MODEL, *_AFTER_SCORING, "handler", "constructor_kwargs", "pad_token_id"),
        ),
    },
}
"""Keys of each part of the section; lamorel's launcher checks those of `accelerate_args`."""


@dataclass(frozen=True)
class Servers:
    """The processes that hold the model, and the model that lamorel loads there.

    Attributes:
        layout: version of lamorel whose layout the section has.
        name: of the model in 0.3; empty in 0.2.
        number, number_key: of processes, and its key, for messages.
        model, model_key: name or folder of the model, and its key.
        model_type, type_key: `causal` or `seq2seq`, as which lamorel loads it, and its key.
        on_gpu: whether each process has a GPU.
    """

    layout: str
    name: str
    number: int
    number_key: str
    model: str
    model_key: str
    model_type: str
    type_key: str
    on_gpu: bool


def read_servers(section: Mapping[str, Any]) -> Servers:
    """Read lamorel's section.

    Raises:
        InputError: one line with the key, its value and what is allowed.
    """
    allow(section, f"{SETUP}.n_rl_processes", 1)
    models = at(section, f"{SETUP}.llm_processes")
    is_newer = isinstance(models, Mapping) and models
    return _read_newer(section) if is_newer else _read_older(section)


def check_version(layout: str) -> None:
    """Raise InputError if the installed lamorel is of another version than the layout."""
    try:
        installed = version("lamorel")
    except PackageNotFoundError:
        return
    if layout != (OLDER if installed.startswith(OLDER) else NEWER):
        raise InputError(
            f"{LAMOREL}.{SETUP}: the layout of lamorel {layout} is not allowed with lamorel "
            f"{installed}, which is installed here; allowed: --config-path "
            f"{FOLDERS[NEWER if layout == OLDER else OLDER]} (docs/lamorel.md)"
        )


def _check_keys(section: Mapping[str, Any], layout: str, name: str = "") -> None:
    """Raise InputError for a key that this layout, with a model called `name`, lacks."""
    for place, allowed in KEYS[layout].items():
        path = place.replace("NAME", name)
        part = at(section, path, {}) if path else section
        if not isinstance(part, Mapping):
            raise InputError(f"{LAMOREL}.{path}: {shown(part)} is not a mapping of keys to values")
        for key in part:
            if key not in allowed:
                where = f"{path}.{key}" if path else key
                raise InputError(
                    f"{LAMOREL}.{where}: unknown key; allowed: {', '.join(sorted(allowed))}"
                )


def _read_older(section: Mapping[str, Any]) -> Servers:
    _check_keys(section, OLDER)
    allow(section, "llm_args.parallelism.model_parallelism_size", 1)
    number = f"{SETUP}.n_llm_processes"
    return Servers(
        OLDER,
        "",
        _at_least_one(section, number),
        f"{LAMOREL}.{number}",
        *_model(section, "llm_args"),
        on_gpu=_one_of(section, "llm_args.parallelism.use_gpu", (True, False)),
    )


def _read_newer(section: Mapping[str, Any]) -> Servers:
    names = list(at(section, f"{SETUP}.llm_processes"))
    configs = at(section, "llm_configs", {})
    if not isinstance(configs, Mapping):
        raise InputError(
            f"{LAMOREL}.llm_configs: {shown(configs)} is not a mapping of names to models"
        )
    configured = list(configs)
    if len(names) != 1 or configured != names:
        raise InputError(
            f"{LAMOREL}: models {shown(names)} in {SETUP}.llm_processes and {shown(configured)} in "
            "llm_configs are not allowed; allowed: one model, of the same name in both"
        )
    _check_keys(section, NEWER, names[0])
    place, model = f"{SETUP}.llm_processes.{names[0]}", f"llm_configs.{names[0]}"
    allow(section, f"{model}.handler", "hf_llm")
    number = _at_least_one(section, f"{place}.n_processes")
    devices = at(section, f"{place}.devices_per_process")
    on_cpus = devices == ["cpu"] * number
    if not on_cpus and not _has_one_gpu_each(devices, number):
        raise InputError(
            f"{LAMOREL}.{place}.devices_per_process: {shown(devices)} is not allowed for {number} "
            "processes; allowed: cpu for each, or a list with the number of another GPU for each"
        )
    return Servers(
        NEWER,
        names[0],
        number,
        f"{LAMOREL}.{place}.n_processes",
        *_model(section, model),
        on_gpu=not on_cpus,
    )


def _has_one_gpu_each(devices: Any, number: int) -> bool:
    if not isinstance(devices, list) or len(devices) != number:
        return False
    lists = [device for device in devices if isinstance(device, list) and len(device) == 1]
    return len({gpu for (gpu,) in lists if type(gpu) is int and gpu >= 0}) == number


def _model(section: Mapping[str, Any], place: str) -> tuple[str, str, str, str]:
    """Name and type of the model, each followed by its key."""
    allow(section, f"{place}.pretrained", True)
    allow(section, f"{place}.load_in_4bit", False)
    name = at(section, f"{place}.model_path")
    if not isinstance(name, str):
        allowed = "a name or a folder, as backbone.model takes them"
        raise not_allowed(f"{LAMOREL}.{place}.model_path", name, allowed)
    kind = _one_of(section, f"{place}.model_type", KINDS)
    return name, f"{LAMOREL}.{place}.model_path", kind, f"{LAMOREL}.{place}.model_type"


def with_model(section: Mapping[str, Any], servers: Servers, folder: str) -> dict[str, Any]:
    """The section, with the folder from which lamorel loads the model."""
    if servers.layout == OLDER:
        return {**section, "llm_args": {**section["llm_args"], "model_path": folder}}
    model = {**section["llm_configs"][servers.name], "model_path": folder}
    return {**section, "llm_configs": {servers.name: model}}


def at(values: Mapping[str, Any], path: str, otherwise: Any = None) -> Any:
    """The value at a dotted path."""
    value: Any = values
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return otherwise if value is None else value


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def allow(section: Mapping[str, Any], path: str, allowed: Any, name: str = LAMOREL) -> None:
    """Raise InputError unless the value at a dotted path of the section is `allowed` or absent."""
    value = at(section, path, allowed)
    if value != allowed or isinstance(value, bool) != isinstance(allowed, bool):
        why = f"{_as_yaml(allowed)} (docs/lamorel.md says why)"
        raise not_allowed(f"{name}.{path}", value, why)


def _one_of(section: Mapping[str, Any], path: str, allowed: tuple[Any, ...]) -> Any:
    value = at(section, path)
    if value not in allowed:
        raise not_allowed(f"{LAMOREL}.{path}", value, ", ".join(map(_as_yaml, allowed)))
    return value


def _at_least_one(section: Mapping[str, Any], path: str) -> int:
    number = at(section, path)
    if type(number) is not int or number < 1:
        raise not_allowed(f"{LAMOREL}.{path}", number, "1 or more")
    return number
