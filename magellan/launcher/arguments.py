"""Translate a configuration in the style of the paper's repository to ours.

`lamorel_args` is lamorel's own section. The others have the names of the released files, and some
of ours. Unknown sections and keys are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from magellan.backends.lamorel.section import (
    LAMOREL,
    MISSING,
    WHY,
    Servers,
    as_yaml,
    is_the,
    read_servers,
)
from magellan.config import RunConfig, resolve_run
from magellan.config.identity import flat_keys
from magellan.config.resolve import nested
from magellan.core.errors import InputError, not_allowed, shown

SCRIPT, MAGELLAN, WINDOWS = "rl_script_args", "magellan_args", "srdiff_args"
"""Sections: of the run; of the sampler `magellan`; of `online` and `ek_online`."""


class Name(NamedTuple):
    """What a name of the launcher's files sets.

    Attributes:
        key: ours; a section if `convert` returns a mapping of its keys.
        convert: from the value in the file to ours; raises ValueError with what is allowed.
        also: keys that get the same value unless another name sets them.
    """

    key: str
    convert: Callable[[Any], Any] = lambda value: value
    also: tuple[str, ...] = ()


def _mix(value: Any) -> str:
    """Goals per category, or the name of a goal space."""
    return "-".join(map(str, value if isinstance(value, list | tuple) else [value]))


def _world(value: Any) -> str:
    if value != "LittleZoo":
        raise ValueError(f"LittleZoo; another world as {SCRIPT}.config.world")
    return "little_zoo"


def _temperature(value: Any) -> dict[str, Any]:
    """`auto`: trained with the released rule; a number: fixed."""
    if value == "auto":
        return {"temperature": "released"}
    return {"temperature": "fixed", "temperature_initial": value}


def _number_of_updates(value: Any) -> int:
    """The released code numbers updates from 0 and trains the actor after number `value`."""
    if type(value) is not int or value < 0:
        raise ValueError("0 or more updates, one less than agent.actor_warmup_updates")
    return value + 1


EXPLORATION = {
    "epsilon_start": Name("samplers.epsilon_start"),
    "epsilon_end": Name("samplers.epsilon_end"),
    "epsilon_decay": Name("samplers.epsilon_decay"),
}
RELEASED: Mapping[str, Mapping[str, Name]] = {
    SCRIPT: {
        "goal_sampler": Name("sampler"),
        "seed": Name("seed"),
        "env_name": Name("world", _world),
        "goals_distribution": Name("goal_space", _mix),
        "num_episodes": Name("budget.episodes"),
        "test_freq": Name("budget.evaluate_every"),
        "number_envs": Name("agent.num_envs"),
        "update_freq": Name("agent.steps_per_update"),
        "buffer_size": Name("agent.replay_capacity"),
        "minibatch_size": Name("agent.batch_size"),
        "gradient_batch_size": Name("backend.micro_batch"),
        "lr": Name("agent.learning_rate", also=("competence.learning_rate",)),
        "gamma": Name("agent.gamma"),
        "n_steps": Name("agent.n_step"),
        "alpha": Name("agent", _temperature),
        "a_lr": Name("agent.temperature_learning_rate"),
        "warmup_updates": Name("agent.actor_warmup_updates", _number_of_updates),
        "lora_r": Name("backbone.lora_rank"),
        "lora_alpha": Name("backbone.lora_alpha"),
    },
    MAGELLAN: {
        **EXPLORATION,
        "buffer_size": Name("competence.buffer"),
        "batch_size": Name("competence.batch_size"),
        "recompute_freq": Name("competence.refresh"),
        "N": Name("competence.delay"),
    },
    WINDOWS: {
        **EXPLORATION,
        "buffer_size": Name("per_goal.window", also=("expert_buckets.window",)),
    },
}
"""Names in the released files, by section."""

OURS: Mapping[str, Name] = {
    **EXPLORATION,
    "keep_every": Name("budget.keep_every"),
    "nb_test_goals": Name("budget.evaluation_goals"),
    "nb_episodes": Name("budget.episodes"),
    "batch_size": Name("agent.batch_size"),
    "n_step": Name("agent.n_step"),
    "polyak": Name("agent.polyak"),
    "alpha_lr": Name("agent.temperature_learning_rate"),
    "actor_warmup": Name("agent.actor_warmup_updates"),
    "sr_lr": Name("competence.learning_rate"),
    "sr_batch_size": Name("competence.batch_size"),
    "sr_buffer_size": Name("competence.buffer"),
    "recompute_freq": Name("competence.refresh"),
    "delay": Name("competence.delay"),
    "lp_threshold": Name("magellan.lp_threshold"),
}
"""Further names in `rl_script_args`."""

NAMES = {**RELEASED, SCRIPT: {**RELEASED[SCRIPT], **OURS}}

FIXED: Mapping[str, Mapping[str, Any]] = {
    SCRIPT: {
        "use_lora": True,
        "nb_updates": 1,
        "gradient_minibatch_size": None,
        "adaptation_test": False,
    },
    MAGELLAN: {"use_value": False},
    WINDOWS: {},
}
"""Names with a single supported value, by section."""

ADAPTERS = {
    ("sr_adapters", True): "own",
    ("sr_adapters", False): "frozen",
    ("default", True): "shared",
    ("default", False): "policy",
}
"""`sr_adapters` and `train_llm` of `magellan_args` -> `competence.adapter`."""

PATH = "--config-path"
"""Hydra's option for the folder of configurations."""
OWN: Mapping[str, tuple[str, ...]] = {
    SCRIPT: ("path", "output_dir", "loading_path", "preset", "config", "save_freq"),
    MAGELLAN: ("sr_adapters", "train_llm"),
    WINDOWS: (),
}
"""Names that are read one by one."""


@dataclass(frozen=True)
class Launch:
    """The task of a launcher process.

    loading: folder with the checkpoint to resume from; None: a new run.
    servers: processes that hold the model, and the model that lamorel loads there.
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
    for section in values:
        if section not in (LAMOREL, *NAMES):
            raise InputError(f"{section}: unknown section; allowed: {', '.join((LAMOREL, *NAMES))}")
    lamorel = _mapping(values.get(LAMOREL), LAMOREL)
    given = {
        section: _mapping(values.get(section, {} if section != SCRIPT else None), section)
        for section in NAMES
    }
    for section, names in given.items():
        _check_names(section, names)
    servers = read_servers(lamorel)
    script = given[SCRIPT]
    output, loading = script.get("output_dir"), script.get("loading_path")
    if output is None:
        raise InputError(f"{SCRIPT}.output_dir: key is missing; allowed: a folder for the run")
    for name, folder in (("output_dir", output), ("loading_path", loading)):
        if folder is not None and not (isinstance(folder, str) and folder):
            raise not_allowed(f"{SCRIPT}.{name}", folder, "a folder, as text")
    backend = {"kind": "lamorel", "device": "cuda" if servers.on_gpu else "cpu"}
    model = {"backbone": {"model": servers.model}, "backend": backend}
    layers, set_by = _layers(given)
    layers += [_adapter(given[MAGELLAN]), _own_keys(script, set_by), model]
    config = resolve_run(str(script.get("preset", "paper")), layers)
    return Launch(
        config, Path(output), None if loading is None else Path(loading), servers, lamorel
    )


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: {shown(value)} is not a mapping of keys to values")
    return value


def _check_names(section: str, given: Mapping[str, Any]) -> None:
    """Refuse unknown names, those without a value, and values other than the only supported one."""
    allowed = {*NAMES[section], *FIXED[section], *OWN[section]} - {"save_freq"}
    for name, value in given.items():
        key = f"{section}.{name}"
        if name == "save_freq":
            ours = f"{section}.keep_every, the episodes between kept checkpoints"
            why = ": the released code counts updates"
            raise not_allowed(key, value, f"{ours} (budget.keep_every)", why)
        if name not in allowed:
            raise InputError(_unknown(section, name, allowed))
        if value == MISSING:
            raise InputError(f"{key}: key is missing; allowed: a value, as {key}=...")
        if name in FIXED[section]:
            only = FIXED[section][name]
            if not is_the(value, only):
                raise not_allowed(key, value, f"{as_yaml(only)} {WHY}")
        elif value is None and name != "loading_path":
            raise not_allowed(key, value, "a value, or no such key")


def _unknown(section: str, name: Any, allowed: set[str]) -> str:
    elsewhere = [other for other in NAMES if name in {*NAMES[other], *FIXED[other], *OWN[other]}]
    hint = f"; it belongs to {' or '.join(elsewhere)}" if elsewhere else ""
    more = f"; any other key of a run under {SCRIPT}.config" if section == SCRIPT else ""
    return f"{section}.{name}: unknown key{hint}; allowed: {', '.join(sorted(allowed))}{more}"


def _layers(
    given: Mapping[str, Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], dict[str, tuple[str, Any]]]:
    """Layers of a run's configuration, one per name; and for each key its name and value.

    Raises:
        InputError: two names give a key two values.
    """
    set_by: dict[str, tuple[str, Any]] = {}
    weak: list[Mapping[str, Any]] = []
    layers: list[Mapping[str, Any]] = []
    for section, names in given.items():
        for name in filter(NAMES[section].__contains__, names):
            rule, at = NAMES[section][name], f"{section}.{name}"
            try:
                ours = rule.convert(names[name])
            except ValueError as error:
                raise not_allowed(at, names[name], str(error)) from None
            weak += [nested(key.split("."), ours) for key in rule.also]
            layers.append(nested(rule.key.split("."), ours))
            for key, value in flat_keys(layers[-1]).items():
                other, before = set_by.setdefault(key, (at, value))
                if before != value:
                    why = f" beside {other}, which sets {key} to {shown(before)}"
                    raise not_allowed(at, names[name], "one of the two", why)
    return [*weak, *layers], set_by


def _adapter(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if not given.keys() & set(OWN[MAGELLAN]):
        return {}
    adapters, train = given.get("sr_adapters", "sr_adapters"), given.get("train_llm", True)
    if not isinstance(train, bool):
        raise not_allowed(f"{MAGELLAN}.train_llm", train, "true, false")
    if not isinstance(adapters, str) or (adapters, train) not in ADAPTERS:
        raise not_allowed(f"{MAGELLAN}.sr_adapters", adapters, "sr_adapters, default")
    return {"competence": {"adapter": ADAPTERS[adapters, train]}}


def _own_keys(script: Mapping[str, Any], set_by: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of our own configuration, but those that lamorel or a name of the files sets."""
    layer = _mapping(script.get("config", {}), f"{SCRIPT}.config")
    for section, names in (("backend", {"kind", "device"}), ("backbone", {"model"})):
        for name in names & set(_mapping(layer.get(section) or {}, f"{SCRIPT}.config.{section}")):
            raise InputError(
                f"{SCRIPT}.config.{section}: {name} is not allowed here: {LAMOREL} says it"
            )
    for key, value in flat_keys(layer).items():
        other, before = set_by.get(key, ("", value))
        if before != value:
            why = f" beside {other}, which sets {key} to {shown(before)}"
            raise not_allowed(f"{SCRIPT}.config.{key}", value, "one of the two", why)
    return layer
