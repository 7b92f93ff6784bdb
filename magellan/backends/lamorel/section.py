"""lamorel's own section of a configuration, in the layout of its version 0.2 or 0.3.

Version 0.3 lists language models and their processes by name. This suite has one model, of any
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from magellan.core.errors import InputError, not_allowed, shown

LAMOREL = "lamorel_args"
SETUP = "distributed_setup_args"
MISSING = "???"
"""Hydra's placeholder for a value that the command line must give."""
OLDER, NEWER = "0.2", "0.3"
"""Versions of lamorel with a supported layout."""
FOLDERS = {OLDER: "config/little_zoo", NEWER: "config/little_zoo_v03"}


class Key(NamedTuple):
    """A key of the section.

    Attributes:
        allowed: values, in words.
        allows: whether a value other than null is allowed.
        optional: whether lamorel does without the key.
        null: whether lamorel takes null.
    """

    allowed: str = "see the files in config"
    allows: Callable[[Any], bool] = lambda value: True
    optional: bool = False
    null: bool = False

    def but_optional(self) -> Key:
        """The same, of a key that may be absent."""
        return self._replace(optional=True)


def as_yaml(value: Any) -> str:
    """A plain value as YAML writes it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def is_the(value: Any, only: Any) -> bool:
    """Whether two plain values are equal; `true` is not 1."""
    return bool(value == only) and isinstance(value, bool) == isinstance(only, bool)


def _only(value: Any) -> Key:
    return Key(f"{as_yaml(value)} {WHY}", lambda given: is_the(given, value))


def _one_of(*values: Any) -> Key:
    allowed = ", ".join(map(as_yaml, values))
    return Key(allowed, lambda given: any(is_the(given, value) for value in values))


def _number(least: int) -> Key:
    return Key(f"{least} or more", lambda given: type(given) is int and given >= least)


WHY = "(docs/lamorel.md says why)"
ANY, FLAG, SECONDS = Key(), _one_of(True, False), _number(1).but_optional()
_LEVELS = ("debug", "info", "warning", "error", "critical")
_TOP = {
    "log_level": Key(
        ", ".join(_LEVELS), lambda given: isinstance(given, str) and given.lower() in _LEVELS
    ),
    SETUP: ANY,
}
_MODEL = {
    "model_type": _one_of("causal", "seq2seq"),
    "model_path": Key(
        "a name or a folder, as backbone.model takes them", lambda given: isinstance(given, str)
    ),
    "pretrained": _only(True),
    "minibatch_size": _number(1),
    "pre_encode_inputs": FLAG,
    "load_in_4bit": _only(False),
}
_AFTER_SCORING = {"synchronize_gpus_after_scoring": FLAG, "empty_cuda_cache_after_scoring": FLAG}
_ANYTHING = ANY.but_optional()
# A file for one version also has the keys that the other version's launcher requires, so that our
# program starts and can report the wrong version.
KEYS: Mapping[str, Mapping[str, Mapping[str, Key]]] = {
    OLDER: {
        "": {
            **_TOP,
            "accelerate_args": ANY,
            "llm_args": ANY,
            "allow_subgraph_use_whith_gradient": FLAG,
            "gloo_timeout": SECONDS,
        },
        SETUP: {
            "n_rl_processes": _only(1),
            "n_llm_processes": _number(1),
            "llm_processes": _ANYTHING,
            "multinode": _ANYTHING,
        },
        "llm_args": {
            **_MODEL,
            "seed": Key("a whole number, or null", lambda given: type(given) is int, null=True),
            "parallelism": ANY,
        },
        "llm_args.parallelism": {
            "use_gpu": FLAG,
            "model_parallelism_size": _only(1),
            **_AFTER_SCORING,
        },
    },
    NEWER: {
        "": {**_TOP, "llm_configs": ANY, "accelerate_args": _ANYTHING, "llm_args": _ANYTHING},
        SETUP: {
            "n_rl_processes": _only(1),
            "n_llm_processes": _ANYTHING,
            "llm_processes": ANY,
            "multinode": FLAG,
            "multinode_args": _ANYTHING,
            "backend": _one_of("gloo", "nccl").but_optional(),
            "init_timeout": SECONDS._replace(null=True),
            "timeout": SECONDS,
        },
        f"{SETUP}.llm_processes.NAME": {
            "n_processes": _number(1),
            "devices_per_process": ANY,
            "ddp_kwargs": Key("a mapping, or null", null=True),
        },
        "llm_configs.NAME": {
            **_MODEL,
            **_AFTER_SCORING,
            "handler": _only("hf_llm"),
            "constructor_kwargs": Key("a mapping, or null", null=True),
            "pad_token_id": Key(optional=True, null=True),
        },
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
    """Raise InputError for a key that this layout lacks or needs, or for a value it refuses.

    name: of the model, in 0.3.
    """
    for place, keys in KEYS[layout].items():
        path = place.replace("NAME", name)
        part = at(section, path, {}) if path else section
        if not isinstance(part, Mapping):
            raise InputError(f"{LAMOREL}.{path}: {shown(part)} is not a mapping of keys to values")
        for key in part:
            if key not in keys:
                allowed = ", ".join(sorted(keys))
                raise InputError(f"{_full(path, key)}: unknown key; allowed: {allowed}")
        for key, rule in keys.items():
            value = part.get(key, MISSING)
            if is_the(value, MISSING):
                if not rule.optional or key in part:
                    raise InputError(f"{_full(path, key)}: key is missing; allowed: {rule.allowed}")
            elif not (rule.null if value is None else rule.allows(value)):
                raise not_allowed(_full(path, key), value, rule.allowed)


def _full(path: str, key: str) -> str:
    return ".".join(filter(None, (LAMOREL, path, key)))


def _read_older(section: Mapping[str, Any]) -> Servers:
    _check_keys(section, OLDER)
    number = f"{SETUP}.n_llm_processes"
    return Servers(
        OLDER,
        "",
        at(section, number),
        f"{LAMOREL}.{number}",
        *_model(section, "llm_args"),
        on_gpu=at(section, "llm_args.parallelism.use_gpu"),
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
    number = at(section, f"{place}.n_processes")
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
    path, kind = f"{place}.model_path", f"{place}.model_type"
    return at(section, path), f"{LAMOREL}.{path}", at(section, kind), f"{LAMOREL}.{kind}"


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
