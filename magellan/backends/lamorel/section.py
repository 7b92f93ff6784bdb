"""lamorel's own section of a configuration, in the layout of its version 0.2 or 0.3.

Version 0.3 gives every language model a name, and its processes under that name. This suite has
one model; its name is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magellan.errors import InputError, shown

LAMOREL = "lamorel_args"
SETUP = "distributed_setup_args"
KINDS = ("causal", "seq2seq")
OLDER, NEWER = "0.2", "0.3"
"""Versions of lamorel whose layouts are read."""


@dataclass(frozen=True)
class Servers:
    """The processes that hold the model, and what lamorel loads there.

    Attributes:
        layout: version of lamorel in whose layout the section is written.
        name: the model's, in 0.3; empty in 0.2.
        number: of processes.
        number_key: what says it, for messages.
        model, model_key: its name or folder, and what says it.
        model_type, type_key: `causal` or `seq2seq`, as which lamorel loads it, and what says it.
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
    """What lamorel's section says.

    Raises:
        InputError: one line with the key, its value and what is allowed.
    """
    allow(section, f"{SETUP}.n_rl_processes", 1)
    newer = isinstance(at(section, f"{SETUP}.llm_processes"), Mapping)
    return _newer(section) if newer else _older(section)


def _older(section: Mapping[str, Any]) -> Servers:
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


def _newer(section: Mapping[str, Any]) -> Servers:
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
    place, model = f"{SETUP}.llm_processes.{names[0]}", f"llm_configs.{names[0]}"
    allow(section, f"{model}.handler", "hf_llm")
    number = _at_least_one(section, f"{place}.n_processes")
    devices = at(section, f"{place}.devices_per_process")
    on_cpus = devices == ["cpu"] * number
    if not on_cpus and not _a_gpu_each(devices, number):
        raise InputError(
            f"{LAMOREL}.{place}.devices_per_process: {shown(devices)} is not allowed for {number} "
            "processes; allowed: cpu for each, or a list with the number of one GPU for each"
        )
    return Servers(
        NEWER,
        names[0],
        number,
        f"{LAMOREL}.{place}.n_processes",
        *_model(section, model),
        on_gpu=not on_cpus,
    )


def _a_gpu_each(devices: Any, number: int) -> bool:
    return (
        isinstance(devices, list)
        and len(devices) == number
        and all(
            isinstance(each, list) and len(each) == 1 and type(each[0]) is int for each in devices
        )
    )


def _model(section: Mapping[str, Any], place: str) -> tuple[str, str, str, str]:
    """Name and kind of the model, each followed by its key."""
    allow(section, f"{place}.pretrained", True)
    allow(section, f"{place}.load_in_4bit", False)
    name = at(section, f"{place}.model_path")
    if not isinstance(name, str):
        raise InputError(
            f"{LAMOREL}.{place}.model_path: {shown(name)} is not allowed; allowed: a name or a "
            "folder, as backbone.model takes them"
        )
    kind = _one_of(section, f"{place}.model_type", KINDS)
    return name, f"{LAMOREL}.{place}.model_path", kind, f"{LAMOREL}.{place}.model_type"


def with_model(section: Mapping[str, Any], servers: Servers, folder: str) -> dict[str, Any]:
    """The section with the folder that lamorel is to load the model from."""
    if servers.layout == OLDER:
        return {**section, "llm_args": {**section["llm_args"], "model_path": folder}}
    model = {**section["llm_configs"][servers.name], "model_path": folder}
    return {**section, "llm_configs": {servers.name: model}}


def at(values: Mapping[str, Any], path: str, otherwise: Any = None) -> Any:
    """The value at a dotted path."""
    found: Any = values
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return otherwise if found is None else found


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def allow(section: Mapping[str, Any], path: str, allowed: Any, name: str = LAMOREL) -> None:
    """One value only, or none, at a dotted path of the section called `name`.

    Raises:
        InputError: another value stands there.
    """
    value = at(section, path, allowed)
    if value != allowed or isinstance(value, bool) != isinstance(allowed, bool):
        raise InputError(
            f"{name}.{path}: {shown(value)} is not allowed; allowed: {_as_yaml(allowed)} "
            "(docs/lamorel.md says why)"
        )


def _one_of(section: Mapping[str, Any], path: str, allowed: tuple[Any, ...]) -> Any:
    value = at(section, path)
    if value not in allowed:
        listed = ", ".join(map(_as_yaml, allowed))
        raise InputError(f"{LAMOREL}.{path}: {shown(value)} is not allowed; allowed: {listed}")
    return value


def _at_least_one(section: Mapping[str, Any], path: str) -> int:
    number = at(section, path)
    if type(number) is not int or number < 1:
        raise InputError(f"{LAMOREL}.{path}: {shown(number)} is not allowed; allowed: 1 or more")
    return number
