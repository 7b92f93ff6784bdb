"""From presets, files and command lines to a typed configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from magellan.config.modules import beside, load_modules
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
    return validated(run_model(), values)


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


def load_experiment(values: Mapping[str, Any], models: bool = True) -> ExperimentConfig:
    """Validate an experiment's configuration; loads the files under `modules`.

    models: whether its language models must be there.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"config: {shown(values)} is not a mapping of keys to values")
    from magellan.config.grid import check_models

    load_modules(values.get("modules", ()))
    experiment = validated(ExperimentConfig, dict(values))
    if models:
        check_models(experiment)
    return experiment


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
