"""Resolve presets, files and command lines to a typed configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from magellan.config.identity import identity
from magellan.config.modules import load_modules, resolve_paths
from magellan.config.phases import check_observers, check_phases, check_pool
from magellan.config.presets import PRESETS, check_preset
from magellan.config.schema import BudgetConfig, ExperimentConfig, RunConfig, run_model
from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.files import reading
from magellan.core.parsing import parse_yaml
from magellan.core.settings import validated
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS

RETIRED: Mapping[str, Any] = {
    "agent.critic_activation": "relu",
    "agent.critic_loss": "squared",
    "agent.critic_norm": False,
    "backend.capture": False,
    "backend.compile": False,
    "backend.length_bucket": 0,
    "budget.record_predictions": False,
    "competence.space": "read",
    "competence.within": "uniform",
}
"""Keys that only stored configurations have, and the only values there that this code can run."""


def resolve_run(preset: str, layers: Iterable[Mapping[str, Any]]) -> RunConfig:
    """Build a run's configuration: schema defaults, then the preset, then each layer in turn.

    Loads the files under `modules` first, for their samplers, estimators and worlds.

    Raises:
        InputError: unknown preset, unknown key or a value out of range.
    """
    values: dict[str, Any] = {"preset": check_preset(preset)}
    for layer in (PRESETS[preset], *layers):
        values = merged(values, layer)
    if values["preset"] != preset:
        why = f" here: the run starts from the preset {preset!r}"
        raise not_allowed("preset", values["preset"], f"{preset}, or another --preset", why)
    budget, steps = values.get("budget", {}), PRESETS[preset].get("budget", {}).get("steps")
    unused = (None, BudgetConfig.model_fields["episodes"].default)  # as a manifest has it
    if steps and budget["steps"] == steps and budget.get("episodes") not in unused:
        why = f" beside budget.steps = {steps}, at which the preset {preset} ends runs"
        raise not_allowed("budget.episodes", budget["episodes"], "budget.steps = 0 with it", why)
    load_modules(values.get("modules", ()))
    config = checked_run(values)
    check_pool(config)
    return config


def checked_run(values: Mapping[str, Any], where: str = "") -> RunConfig:
    """Validate a run's configuration; `where` precedes the key in errors.

    Raises:
        InputError: unknown key, a value out of range, or inconsistent values.
    """
    config = validated(run_model(), values, where)
    try:
        check_phases(config)
        check_observers(config)
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return config


def stored_config(
    values: dict[str, Any], stored_identity: Any, modules: tuple[str, ...], path: Path
) -> RunConfig:
    """Validate the configuration in a run's manifest or checkpoint, which is not trusted.

    stored_identity: of the run, according to the file.
    modules: user files with the run's samplers, estimators or worlds; they are run, not those that
        the file names.
    path: of the file, for errors.

    Raises:
        InputError: an invalid configuration, another identity, user files without `modules`, or
            a key of `RETIRED` with another value.
    """
    user_files = values.get("modules")
    if user_files and not modules:
        raise InputError(
            f"{path}: the run used files of its user, {shown(user_files)}; name them with --module "
            "if you trust them: they are run"
        )
    load_modules(modules)
    kept = {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}
    for key, built_in in RETIRED.items():
        section, name = key.split(".")
        keys = kept.get(section)
        value = keys.pop(name, built_in) if isinstance(keys, dict) else built_in
        if value != built_in:
            raise InputError(
                f"{path}: config.{key}: {shown(value)} is not an option of this version of the "
                f"code; allowed: {shown(built_in)}"
            )
    config = checked_run(kept, f"{path}: config.")
    if stored_identity != identity(config):
        raise InputError(
            f"{path}: identity is {shown(stored_identity)}, that of its configuration "
            f"{identity(config)}; was it edited, or trained with another version of the code?"
        )
    return config


def merged(base: Mapping[str, Any], extra: Any, where: str = "") -> dict[str, Any]:
    """Merge a nested mapping over another; `where` precedes keys in errors."""
    if not isinstance(extra, Mapping):
        raise InputError(
            f"{where.rstrip('.') or 'overrides'}: {shown(extra)} is not a mapping of keys to values"
        )
    result = dict(base)
    for key, value in extra.items():
        if isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value, f"{where}{key}.")
        else:
            result[key] = value
    return result


def parse_assignment(text: str) -> dict[str, Any]:
    """Parse `section.key=value` to a nested mapping; the value is YAML."""
    key, separator, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not all(parts):
        raise InputError(f"--set: {shown(text)} is not of the form section.key=value")
    return nested(parts, parse_yaml(value, f"--set: the value of {shown(text)}"))


def nested(parts: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the layer with this value at a key, given by its parts: section and name."""
    for part in reversed(parts):
        value = {part: value}
    layer: dict[str, Any] = value
    return layer


def check_named(values: Mapping[str, Any], place: str) -> None:
    """Check that an experiment file sets `experiment`, the folder of its results.

    Raises:
        InputError: the key is missing: results would mix with those of the default experiment.
    """
    if "experiment" not in values:
        raise InputError(
            f"{place}: experiment: key is missing; allowed: a name of its own, for its results"
        )


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping, empty for an empty file; `modules` are relative to the file.

    Raises:
        InputError: the file is absent or malformed.
    """
    try:
        with reading(f"config file: {path}"):
            text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"config file: {path} is not UTF-8 text (byte {error.start}); allowed: YAML in UTF-8"
        ) from None
    values = parse_yaml(text, f"config file: {path}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(
            f"config file: {path} holds {shown(values)}; allowed: a mapping of keys to values"
        )
    if "__use_yte__" in values:
        raise InputError(
            f"config file: {path}: __use_yte__ is not allowed: it makes Snakemake run Python code "
            "in the file; allowed: plain YAML"
        )
    if "modules" in values:
        values["modules"] = resolve_paths(values["modules"], Path(path))
    return values


def experiment_schema() -> dict[str, Any]:
    """Return the JSON schema of an experiment file, generated from the typed configuration.

    Samplers and worlds are listed as examples, since files under `modules` may add more.
    """
    schema = ExperimentConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["additionalProperties"] = False
    schema["properties"]["samplers"]["items"]["examples"] = list(SAMPLERS)
    schema["properties"]["world"]["examples"] = list(WORLDS)
    return schema
