"""From presets, files and command lines to a typed configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from magellan.config.identity import identity
from magellan.config.modules import beside, load_modules
from magellan.config.phases import check_phases, check_recorded, check_watchers
from magellan.config.presets import PRESETS, check_preset
from magellan.config.schema import ExperimentConfig, RunConfig, run_model
from magellan.core.errors import InputError, shown
from magellan.core.parsing import parse_yaml
from magellan.core.settings import validated
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS


def resolve_run(preset: str, layers: Iterable[Mapping[str, Any]]) -> RunConfig:
    """Build a run's configuration: schema defaults, then the preset, then each layer in turn.

    Files under `modules` are loaded first, so that their samplers, estimators and worlds are known.

    Raises:
        InputError: unknown preset, unknown key or a value out of range; one line.
    """
    values: dict[str, Any] = {"preset": check_preset(preset)}
    for layer in (PRESETS[preset], *layers):
        values = merged(values, layer)
    if values["preset"] != preset:
        raise InputError(
            f"preset: {shown(values['preset'])} is not allowed here: the run starts from the "
            f"preset {preset!r}; allowed: {preset}, or another --preset"
        )
    load_modules(values.get("modules", ()))
    return checked_run(values)


def checked_run(values: Mapping[str, Any], where: str = "") -> RunConfig:
    """A run's configuration from its values; `where` goes before the key in errors.

    Raises:
        InputError: unknown key, a value out of range, or values that do not fit together.
    """
    config = validated(run_model(), values, where)
    try:
        for check in (check_phases, check_watchers, check_recorded):
            check(config)
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return config


def stored_config(
    values: dict[str, Any], stored_identity: Any, modules: tuple[str, ...], path: Path
) -> RunConfig:
    """A run's configuration from what its manifest or checkpoint says: checked, never trusted.

    Args:
        values: of the configuration.
        stored_identity: of the run, as the file says it.
        modules: Python files with samplers, estimators or worlds of the run that are no part of
            this package; they are run. What the file names is not.
        path: of the file, for errors.

    Raises:
        InputError: not a configuration of this code, or of another run, or one with files of its
            user that `modules` does not name.
    """
    named = values.get("modules")
    if named and not modules:
        raise InputError(
            f"{path}: the run used files of its user, {shown(named)}; name them with --module "
            "if you trust them: they are run"
        )
    load_modules(modules)
    config = checked_run(values, f"{path}: config.")
    if stored_identity != identity(config):
        raise InputError(
            f"{path}: identity is {shown(stored_identity)}, that of its configuration "
            f"{identity(config)}; was it edited, or trained with another version of the code?"
        )
    return config


def merged(base: Mapping[str, Any], extra: Any, where: str = "") -> dict[str, Any]:
    """A nested mapping with the values of another on top; `where` goes before keys in errors."""
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
    """Turn `section.key=value` into a nested mapping; the value is read as YAML."""
    key, separator, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not all(parts):
        raise InputError(f"--set: {shown(text)} is not of the form section.key=value")
    nested = parse_yaml(value, f"--set: the value of {shown(text)}")
    for part in reversed(parts):
        nested = {part: nested}
    return nested


def check_named(values: Mapping[str, Any], place: str) -> None:
    """A file of its own has results of its own: it must say `experiment`.

    Raises:
        InputError: the key is missing, so results would go among those of the default experiment.
    """
    if "experiment" not in values:
        raise InputError(
            f"{place}: experiment: key is missing; allowed: a name of its own, for its results"
        )


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping. `modules` are relative to the file.

    Raises:
        InputError: one line with the file and the place, when it is absent or malformed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"config file: {path} cannot be read ({error.strerror})") from None
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
            f"config file: {path}: __use_yte__ is not allowed: it makes Snakemake run Python that "
            "stands in the file; allowed: plain YAML"
        )
    if "modules" in values:
        values["modules"] = beside(values["modules"], Path(path))
    return values


def experiment_schema() -> dict[str, Any]:
    """JSON schema of the experiment file, generated from the typed configuration.

    Samplers and worlds are examples, no closed lists: files under `modules` add their own.
    """
    schema = ExperimentConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["additionalProperties"] = False
    schema["properties"]["samplers"]["items"]["examples"] = sampler_names()
    schema["properties"]["world"]["examples"] = list(WORLDS)
    return schema


def sampler_names() -> list[str]:
    """Names that `sampler` accepts."""
    return list(SAMPLERS)
