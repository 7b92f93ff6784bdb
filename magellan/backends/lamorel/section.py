"""lamorel's own section of a configuration, as its version 0.2 reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from magellan.core.errors import InputError, not_allowed, shown

LAMOREL = "lamorel_args"
SETUP = "distributed_setup_args"
MISSING = "???"
"""Hydra's placeholder for a value that the command line must give."""


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


def _number(least: int, optional: bool = False) -> Key:
    return Key(f"{least} or more", lambda given: type(given) is int and given >= least, optional)


WHY = "(docs/lamorel.md says why)"
ANY, FLAG = Key(), _one_of(True, False)
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
KEYS: Mapping[str, Mapping[str, Key]] = {
    "": {
        **_TOP,
        "accelerate_args": ANY,
        "llm_args": ANY,
        "allow_subgraph_use_whith_gradient": FLAG,
        "gloo_timeout": _number(1, optional=True),
    },
    SETUP: {"n_rl_processes": _only(1), "n_llm_processes": _number(1)},
    "llm_args": {
        **_MODEL,
        "seed": Key("a whole number, or null", lambda given: type(given) is int, null=True),
        "parallelism": ANY,
    },
    "llm_args.parallelism": {
        "use_gpu": FLAG,
        "model_parallelism_size": _only(1),
        "synchronize_gpus_after_scoring": FLAG,
        "empty_cuda_cache_after_scoring": FLAG,
    },
}
"""Keys of each part of the section; lamorel's launcher checks those of `accelerate_args`."""


@dataclass(frozen=True)
class Servers:
    """The processes that hold the model, and the model that lamorel loads there.

    Attributes:
        number: of processes.
        model: name or folder of the model.
        model_type: `causal` or `seq2seq`, as which lamorel loads it.
        on_gpu: whether each process has a GPU.
        number_key, model_key, type_key: their keys, for messages.
    """

    number: int
    model: str
    model_type: str
    on_gpu: bool

    number_key: ClassVar[str] = f"{LAMOREL}.{SETUP}.n_llm_processes"
    model_key: ClassVar[str] = f"{LAMOREL}.llm_args.model_path"
    type_key: ClassVar[str] = f"{LAMOREL}.llm_args.model_type"


def read_servers(section: Mapping[str, Any]) -> Servers:
    """Read lamorel's section.

    Raises:
        InputError: one line with the key, its value and what is allowed.
    """
    _check_keys(section)
    model = section["llm_args"]
    return Servers(
        section[SETUP]["n_llm_processes"],
        model["model_path"],
        model["model_type"],
        model["parallelism"]["use_gpu"],
    )


def _check_keys(section: Mapping[str, Any]) -> None:
    """Raise InputError for a key that lamorel lacks or needs, or for a value it refuses."""
    for path, keys in KEYS.items():
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


def at(values: Mapping[str, Any], path: str, otherwise: Any = None) -> Any:
    """The value at a dotted path."""
    value: Any = values
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return otherwise if value is None else value
