"""What a manifest must say before its tables are compared; other keys are kept as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, field_validator

from magellan.config import AnalysisConfig, validated, without_duplicates
from magellan.parsing import read_json_object

MANIFEST = "manifest.json"
Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None


class _Declared(BaseModel):
    model_config = ConfigDict(extra="allow")


class GridManifest(_Declared):
    """The part of an experiment's configuration that the analysis reads."""

    samplers: Annotated[list[StrictStr], Field(min_length=1)]
    goal_spaces: Annotated[list[StrictStr], Field(min_length=1)]
    seeds: Annotated[list[StrictInt], Field(min_length=1)]
    analysis: AnalysisConfig

    @field_validator("samplers", "goal_spaces", "seeds")
    @classmethod
    def _no_duplicates(cls, values: list) -> list:
        return without_duplicates(values)


class RunManifest(_Declared):
    """The part of a run's manifest that the analysis reads."""

    schema_version: Literal[1]
    status: Literal["complete"]
    sampler: StrictStr
    goal_space: StrictStr
    seed: StrictInt
    config: dict[str, Any]
    updates: Amount = None
    steps: Amount = None
    episodes: Amount = None
    wall_seconds: Amount = None
    peak_memory_mb: Amount = None
    saving_seconds: Amount = None
    restarts: Amount = None
    attempts: Amount = None
    stop_reasons: list[StrictStr] | None = None


class MissingRun(_Declared):
    """A declared run that the combined tables lack."""

    sampler: StrictStr
    goal_space: StrictStr
    seed: StrictInt
    reason: StrictStr
    log: StrictStr | None = None


class CombinedManifest(_Declared):
    """The manifest of combined tables; `missing` is absent in those of version 0.1.0."""

    experiment: GridManifest
    runs: Annotated[list[RunManifest], Field(min_length=1)]
    missing: list[MissingRun] = []


def read_run_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of a finished run.

    Raises:
        InputError: absent, malformed, or the run is not complete.
    """
    manifest = read_json_object(folder / MANIFEST)
    validated(RunManifest, manifest, f"{folder / MANIFEST}: ")
    return manifest


def read_combined_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of combined tables; InputError when absent or malformed."""
    manifest = read_json_object(folder / MANIFEST)
    validated(CombinedManifest, manifest, f"{folder / MANIFEST}: ")
    return manifest
