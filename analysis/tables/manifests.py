"""Schemas of the manifests of runs and combined tables; other keys are kept as they are."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, field_validator

from magellan.config.schema import GOAL_SPACE, VARIANT_PATTERN, AnalysisConfig
from magellan.core.errors import InputError, shown
from magellan.core.parsing import read_json_object
from magellan.core.registry import NAME
from magellan.core.settings import validated, without_duplicates
from magellan.worlds.base import COLOR, LABEL

MANIFEST = "manifest.json"
SCHEMA_VERSION = 2
COMMON = "common"
"""Key of a combined manifest: what all runs of a variant have in common, written once."""
SECTIONS = ("config", "counted")
Number = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Amount = Number | None


# Names become paths, labels and captions of a report: only what a configuration may hold.
SamplerName = Annotated[StrictStr, Field(pattern=r"^[a-z][a-z0-9_]*$")]
VariantName = Annotated[StrictStr, Field(pattern=VARIANT_PATTERN)]
FolderName = Annotated[StrictStr, Field(pattern=r"^[^/]*[^/.][^/]*$")]
GoalSpaceName = Annotated[StrictStr, Field(pattern=rf"^{GOAL_SPACE.pattern}$", max_length=60)]


class _Declared(BaseModel):
    model_config = ConfigDict(extra="allow")


class GridManifest(_Declared):
    """The part of an experiment's configuration that the analysis reads."""

    samplers: Annotated[list[SamplerName], Field(min_length=1)]
    goal_spaces: Annotated[list[GoalSpaceName], Field(min_length=1)]
    seeds: Annotated[list[StrictInt], Field(min_length=1)]
    overrides: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {}
    analysis: AnalysisConfig
    preset: StrictStr

    @field_validator("samplers", "goal_spaces", "seeds")
    @classmethod
    def _no_duplicates(cls, values: list) -> list:
        return without_duplicates(values)


class Backbone(_Declared):
    """The language model of a run: its name and the digest of its weights."""

    model: StrictStr
    sha256: StrictStr


class CategoryEntry(_Declared):
    """A category of goals, as `magellan.worlds.Category`."""

    name: Annotated[StrictStr, Field(pattern=rf"^{NAME.pattern}$")]
    feasible: StrictBool
    label: Annotated[StrictStr, Field(pattern=rf"^{LABEL.pattern}$")]
    color: Annotated[StrictStr, Field(pattern=rf"^{COLOR.pattern}$")]


class WorldEntry(_Declared):
    """The world of a run, for an analysis without the file that registers it."""

    name: StrictStr
    categories: Annotated[list[CategoryEntry], Field(min_length=1)]


class Beginning(_Declared):
    """Origin of a run that started from another one."""

    made_with: list[dict[str, Any]] = []


class RunManifest(_Declared):
    """The part of a run's manifest that the analysis reads."""

    schema_version: StrictInt
    status: Literal["complete"]
    sampler: SamplerName
    goal_space: GoalSpaceName
    seed: StrictInt
    preset: StrictStr
    config: dict[str, Any]
    identity: StrictStr
    counted: dict[str, Any]
    driver: StrictStr | None
    estimation_episodes: dict[str, Number]
    modules: dict[str, StrictStr] = {}
    registered: dict[StrictStr, dict[StrictStr, Any]] = {}  # of older runs
    started_from: Beginning | None = None
    world: WorldEntry | None = None
    goal_counts: dict[StrictStr, StrictInt] | None = None
    code_version: StrictStr | None = None
    versions: dict[str, StrictStr] = {}
    backbone: Backbone | None = None
    tokens: StrictStr | None = None
    attempt_log: list[dict[str, Any]] = []
    updates: Amount = None
    steps: Amount = None
    episodes: Amount = None
    wall_seconds: Amount = None
    peak_memory_mb: Amount = None
    saving_seconds: Amount = None
    restarts: Amount = None
    attempts: Amount = None
    stop_reasons: list[StrictStr] | None = None

    @field_validator("schema_version", mode="before")
    @classmethod
    def _check_version(cls, version: Any) -> Any:
        if version != SCHEMA_VERSION:
            raise ValueError(
                "the run was made by an older version of magellan-bench, or a newer one; allowed: "
                f"{SCHEMA_VERSION}, so train it again"
            )
        return version


class _GridRun(_Declared):
    sampler: SamplerName
    variant: VariantName
    goal_space: GoalSpaceName
    seed: StrictInt


class PlannedEntry(_GridRun):
    """A run of the grid."""

    identity: StrictStr


class CombinedRun(RunManifest):
    """A run in combined tables: its manifest, and its variant in the experiment."""

    variant: VariantName


class MissingRun(_GridRun):
    """A planned run that the combined tables lack."""

    reason: StrictStr
    log: StrictStr | None = None


class CombinedManifest(_Declared):
    """The manifest of combined tables."""

    experiment: GridManifest
    plan: Annotated[list[PlannedEntry], Field(min_length=1)]
    runs: Annotated[list[CombinedRun], Field(min_length=1)]
    missing: list[MissingRun]
    notes: list[StrictStr] = []
    shared: list[FolderName] = []


class _Sections(_Declared):
    config: dict[str, Any] = {}
    counted: dict[str, Any] = {}


class _Rest(_Sections):
    variant: VariantName


class _Factored(_Declared):
    common: dict[StrictStr, _Sections]
    runs: list[_Rest]


def read_run_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run.

    Raises:
        InputError: absent, malformed, of an older version, or the run is not complete.
    """
    manifest = read_json_object(folder / MANIFEST)
    validated(RunManifest, manifest, f"{folder / MANIFEST}: ")
    return manifest


def read_combined_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of combined tables; InputError if absent or malformed."""
    path = folder / MANIFEST
    manifest = read_json_object(path)
    if {"experiment", "runs"} <= manifest.keys() and "plan" not in manifest:
        raise InputError(
            f"{path}: {shown('plan')} is missing: the tables were made by an older version of "
            "magellan-bench; allowed: tables of this one, so train and combine the runs again"
        )
    if COMMON in manifest:
        validated(_Factored, manifest, f"{path}: ")
        common = manifest.pop(COMMON)
        manifest["runs"] = [_whole(run, common.get(run["variant"], {})) for run in manifest["runs"]]
    validated(CombinedManifest, manifest, f"{path}: ")
    return manifest


def in_lines(manifest: Mapping[str, Any]) -> str:
    """A combined manifest as JSON, a run a line, and what a variant's runs have in common once.

    It is not sorted: variants are in the experiment's order.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in manifest["runs"]:
        groups.setdefault(run["variant"], []).append(run)
    common = {variant: _common(runs) for variant, runs in groups.items()}
    dumped = functools.partial(json.dumps, separators=(",", ":"))
    parts = ",\n".join(f"{json.dumps(name)}:{dumped(part)}" for name, part in common.items())
    rest = ",\n".join(dumped(_rest(run, common[run["variant"]])) for run in manifest["runs"])
    head = json.dumps({key: manifest[key] for key in manifest if key != "runs"}, indent=1)
    return f'{head[:-2]},\n "{COMMON}": {{\n{parts}\n }},\n "runs": [\n{rest}\n ]\n}}\n'


def _common(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all of the runs have, key by key in their sections, except what names a run."""

    def equal(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        first, *others = [{key: json.dumps(one) for key, one in each.items()} for each in mappings]
        kept = {key for key in first if all(other.get(key) == first[key] for other in others)}
        return {key: mappings[0][key] for key in sorted(kept)}

    names = {*_GridRun.model_fields, "identity", *SECTIONS}
    whole = {key: value for key, value in equal(runs).items() if key not in names}
    return whole | {name: equal([run[name] for run in runs]) for name in SECTIONS}


def _rest(run: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: run[key] for key in sorted(run.keys() - common)}
    for name in SECTIONS:
        own[name] = {key: run[name][key] for key in sorted(run[name].keys() - common[name])}
    return own


def _whole(rest: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    sections = {name: {**common.get(name, {}), **rest.get(name, {})} for name in SECTIONS}
    return {**common, **rest, **sections}
