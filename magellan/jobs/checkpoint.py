"""Checkpoints: a tree of arrays, tensors and JSON values in one safetensors file. Never pickle.

A run keeps its last two in `RUN/checkpoints/`, and for good those at lengths that are multiples of
`budget.keep_every`: `RUN/10000/checkpoints/` has the run after the round that passed 10,000
episodes, before the evaluation there. Each holds the resolved configuration, the SHA-256 of the
backbone and that of its own content; if one is damaged, the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from magellan.config import RunConfig, counted, flat_keys, identity, own_code_of, stored_config
from magellan.config.modules import in_use
from magellan.config.phases import beginning, truncated
from magellan.core.errors import InputError, shown
from magellan.core.files import (
    PARTIAL,
    reading,
    refuse_link,
    sync_folder,
    write_atomically,
    writing,
)
from magellan.jobs import log
from magellan.jobs.provenance import ancestry
from magellan.model.files import check_backbone, model_digest

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
LAST = 2
"""How many a run has, beside those that it keeps."""
POINT = "kept"
"""Key of a kept state: the run's length, in case its folder is renamed."""
VERSION = "5"  # file format; checkpoints of another version are intact, but unusable here
_ARRAY, _TENSOR = "__array__", "__tensor__"
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that an invalid state raises."""
_CHECKED = ("version", "serial", "config", "counted", "identity", "backbone", "state")


class DamagedCheckpoint(Exception):
    """A checkpoint file whose content is not what was written."""


class OtherFormat(Exception):
    """A checkpoint file written by an older or newer version of this code."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint, and newer, damaged ones with what is wrong with them."""

    path: Path
    metadata: dict[str, str]
    state: dict[str, Any]
    damaged: dict[Path, str]


class Checkpoints:
    """The checkpoints of one run, numbered in the order of writing.

    Args:
        folder: folder of the run, or `RUN/10000` for one that it keeps.
        backbone: `model_digest` of the configured backbone; None: computed here.
        argument: option that names the folder, for errors.
        remedy: what to do about unusable ones if another run starts from them, for errors: nothing
            in the folder is changed then. None: they are this run's own.
        point: length at which the run that wrote them must match `config`; None: its full length.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        backbone: str | None = None,
        argument: str = "--resume",
        remedy: str | None = None,
        point: int | None = None,
    ) -> None:
        self.folder = folder / FOLDER
        self._own, self._argument, self._point = remedy is None, argument, point
        start_over = f"use another --output, or move {self.folder} away to start over"
        self._remedy = remedy or start_over
        self._config, self._in_use = config, in_use(own_code_of(config))
        backbone = backbone or model_digest(check_backbone(config.backbone.model))
        self._metadata = {**_run_metadata(config), "backbone": backbone}

    def paths(self) -> list[Path]:
        """Return the checkpoint files, oldest first."""
        return paths_in(self.folder, self._argument)

    def save(self, state: Mapping[str, Any]) -> Path:
        """Write the next checkpoint atomically, then remove all but the last two.

        Raises:
            StorageError: it cannot be written; the two newest earlier ones are untouched.
        """
        earlier = self.paths()
        serial = 1 + (int(earlier[-1].stem) if earlier else 0)
        path = self.folder / f"{serial:08d}{SUFFIX}"
        with writing(self.folder):
            refuse_link(self.folder)
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True)
                sync_folder(self.folder.parent)
        write_atomically(path, encode(state, serial, self._metadata))
        self._remove(earlier[: 1 - LAST])
        return path

    def keep(self, state: Mapping[str, Any], point: int) -> Path:
        """Write a state for good at the length that the run has passed, unless it is there.

        Raises:
            StorageError: it cannot be written.
        """
        kept = self.kept(str(point))
        paths = kept.paths()  # of an earlier attempt
        return paths[-1] if paths else kept.save({**state, POINT: point})

    def kept(self, point: str) -> Checkpoints:
        """Return what this run keeps at a length."""
        return Checkpoints(self.folder.parent / point, self._config, self._metadata["backbone"])

    def remove_partial(self) -> None:
        """Remove partial files of an interrupted save."""
        self._remove(paths_in(self.folder, self._argument, SUFFIX + PARTIAL))

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            with writing(path):
                os.unlink(path)

    def load(self) -> LoadedCheckpoint | None:
        """Return the newest intact checkpoint; None if there is none.

        Changes nothing in the folder: `set_aside` renames newer, damaged ones. In the folder of
        another run these are an error.

        Raises:
            InputError: all are damaged, or the newest intact one has another configuration,
                backbone, version of a user's file or checkpoint format.
        """
        loaded = newest(self.folder, self._argument, self._remedy)
        if loaded is not None:
            self._check(loaded.path, self._at_point(loaded), loaded.state)
            if loaded.damaged and not self._own:
                raise _are_damaged(self._argument, loaded.damaged, self._remedy)
        return loaded

    def set_aside(self, loaded: LoadedCheckpoint) -> str | None:
        """Rename the damaged checkpoints that are newer than `loaded`; return the newest's name.

        Raises:
            StorageError: one cannot be renamed.
        """
        for path in loaded.damaged:
            with writing(path):
                os.replace(path, f"{path}.damaged")
        return next((f"{path.name}.damaged" for path in loaded.damaged), None)

    def check_kept(self) -> None:
        """Refuse what another run keeps in this folder; unreadable files are ignored.

        Raises:
            InputError: another configuration, backbone or version of a user's file.
        """
        for folder in kept_folders(self.folder.parent):
            kept = self.kept(folder.name)
            for path in kept.paths():
                try:
                    with safe_open(path, "pt") as file:
                        metadata = {name: file.metadata()[name] for name in _CHECKED}
                    state = json.loads(metadata["state"])
                except (OSError, SafetensorError, *MALFORMED):
                    continue
                kept._check(path, metadata, state)

    def _check(self, path: Path, metadata: Mapping[str, str], state: Mapping[str, Any]) -> None:
        """Check that this run has written a checkpoint, with the user's files as they are now."""
        here, there = self._metadata["backbone"], metadata["backbone"]
        if there != here:
            stored = _stored_keys(metadata).get("backbone.model")
            raise self._belongs(
                path,
                f"another backbone: backbone.model is {shown(self._config.backbone.model)} with "
                f"SHA-256 {here[:12]} here and {shown(stored)} with {there[:12]} there; ",
            )
        if metadata["identity"] != self._metadata["identity"]:
            differences = _differences(self._metadata, metadata)
            raise self._belongs(path, f"another configuration: {differences}; ")
        for attempt in ancestry(state):
            for name, (_, stored) in in_use(attempt).items():
                file, current = self._in_use.get(name, ("", stored))
                if current != stored:
                    raise self._belongs(
                        path,
                        f"another version of a file under modules: {shown(file)} with {name} has "
                        f"SHA-256 {current[:12]} here and {stored[:12]} there; restore that "
                        "version, or ",
                    )

    def _belongs(self, path: Path, other: str) -> InputError:
        return InputError(f"{self._argument}: {path} belongs to a run with {other}{self._remedy}")

    def _at_point(self, loaded: LoadedCheckpoint) -> dict[str, str]:
        """Metadata of the run if it ended at `point`."""
        path, metadata = loaded.path, loaded.metadata
        if self._point is None:
            return metadata
        kept_at, values = loaded.state.get(POINT), dict(json.loads(metadata["config"]))
        if kept_at != self._point:
            raise InputError(
                f"{self._argument}: {path} was kept at {shown(kept_at)}, not at {self._point}; "
                f"{self._remedy}"
            )
        try:
            config = stored_config(values, metadata["identity"], self._config.modules, path)
        except InputError as error:
            raise InputError(f"{self._argument}: {error}") from None
        return metadata | _run_metadata(truncated(config, self._point))


def paths_in(folder: Path, argument: str, suffix: str = SUFFIX) -> list[Path]:
    """Return the checkpoint files in a folder `checkpoints`, oldest first.

    argument: option that names the run's folder, for the error.

    Raises:
        InputError: the folder cannot be read.
    """
    with reading(f"{argument}: {folder}"):
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
    ours = (name for name in names if name.endswith(suffix))
    return [folder / name for name in ours if name.removesuffix(suffix).isdecimal()]


def newest(folder: Path, argument: str, remedy: str) -> LoadedCheckpoint | None:
    """Return the newest intact checkpoint in a folder `checkpoints`, whichever run wrote it.

    argument, remedy: option that names the run's folder, and what else is allowed, for errors.

    Raises:
        InputError: the folder cannot be read, all are damaged, or the newest intact one has another
            format.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(paths_in(folder, argument)):
        try:
            return LoadedCheckpoint(path, *decode(path), damaged)
        except DamagedCheckpoint as error:
            damaged[path] = str(error)
        except OtherFormat as error:
            raise InputError(
                f"{argument}: {path} has format version {error}; allowed: {VERSION}; continue with "
                f"the code that wrote it; {remedy}"
            ) from None
    if damaged:
        raise _are_damaged(argument, damaged, remedy)
    return None


def _are_damaged(argument: str, damaged: Mapping[Path, str], remedy: str) -> InputError:
    listed = "; ".join(f"{path} is damaged ({why})" for path, why in damaged.items())
    return InputError(f"{argument}: {listed}; {remedy}")


def kept_folders(run: Path) -> list[Path]:
    """Return the folders of kept checkpoints: those named by a number that hold no run."""
    if not run.is_dir():
        return []
    paths = (path for path in run.iterdir() if path.name.isdecimal())
    return sorted(path for path in paths if path.is_symlink() or not (path / log.NAME).exists())


def points(run: Path) -> list[int]:
    """Return the lengths at which a run kept a checkpoint, in order."""
    pattern = f"{FOLDER}/*{SUFFIX}"
    return sorted(int(path.name) for path in kept_folders(run) if any(path.glob(pattern)))


def load_start(
    folder: Path, config: RunConfig, backbone: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the state that a run with these model files starts from.

    folder: of the run that is the beginning of this one, or a longer run's kept `RUN/10000`.

    Returns:
        the trainer's state at the end of the beginning, and the entry `started_from` of the
        manifest: `run` that wrote it (identity), `checkpoint` in its folder, `at` (its length, if
        kept), `seconds` of training behind it, and `made_with`, its `ancestry`.

    Raises:
        InputError: this run has one phase only; or that run does not match, has not ended or was
            not kept at this length, or its checkpoint is damaged.
    """
    first = beginning(config)
    if first is None:
        raise InputError(
            "--start: the run has one phase, so it cannot start from another run; allowed for runs "
            "with phases: the folder of a run that has all of them but the last"
        )
    end, unit = first.budget.end, first.budget.unit
    # A folder named by a number may also be a run's own.
    kept = folder.name.isdecimal() and not (folder / log.NAME).exists()
    kept = kept and (folder.is_dir() or (folder.parent / log.NAME).exists())
    run = folder.parent if kept else folder
    remedy = (
        f"allowed: a run that is the same up to {end} {unit}, and ended there or keeps a "
        f"checkpoint, RUN/{end}; {run} keeps {', '.join(map(str, points(run))) or 'none'}"
    )
    if kept and int(folder.name) != end:
        raise InputError(f"--start: {folder} is a run at {folder.name} {unit}; {remedy}")
    try:
        point = end if kept else None
        loaded = Checkpoints(folder, first, backbone, "--start", remedy, point).load()
        if loaded is None:
            raise InputError(f"--start: {folder} holds no checkpoint; {remedy}")
        trainer, name = loaded.state["trainer"], loaded.path.name
        if kept:
            _check_practice(folder, trainer, first)
            # It was written before the evaluation there, which the starting run does instead.
            trainer["next_evaluation"] = min(trainer["next_evaluation"], end)
        elif trainer["next_evaluation"] <= end:
            raise InputError(f"--start: the run in {folder} has not ended; {remedy}")
        started_from = {
            "run": loaded.metadata["identity"],
            "checkpoint": f"{folder.name}/{FOLDER}/{name}" if kept else name,
            **({"at": end} if kept else {}),
            "seconds": round(float(loaded.state["seconds"]), 1),
            "made_with": ancestry(loaded.state),
        }
        return trainer, started_from
    except InputError:
        raise
    except MALFORMED as error:
        raise invalid_state(f"--start: {folder}", error) from error


def _check_practice(folder: Path, trainer: Mapping[str, Any], first: RunConfig) -> None:
    """Check that a row of `practice` ends where the run starts."""
    end, budget = first.budget.end, first.budget
    rows = trainer["record"]["tables"]["practice"]
    if budget.unit == "episodes" and not any(row[-4] == end for row in rows):
        raise InputError(
            f"--start: {folder}: a row of practice.csv continues past {end} episodes: "
            f"budget.practice_window is {budget.practice_window}; allowed: a phase that ends at a "
            "multiple of it, or the folder of a run that ended there"
        )


def invalid_state(place: str, error: Exception) -> InputError:
    """Return the error for a state that this code cannot have written."""
    return InputError(
        f"{place} does not fit this version of the code ({type(error).__name__}); move the "
        "checkpoints away to start over"
    )


def _stored_keys(metadata: Mapping[str, str], name: str = "config") -> dict[str, Any]:
    """Flat keys of a configuration in a checkpoint; empty if it is invalid."""
    try:
        return flat_keys(json.loads(metadata[name]))
    except MALFORMED:
        return {}


def _differences(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Keys of two runs' metadata that differ, with their values here and there, three at most."""
    here, there = _stored_keys(own, "counted"), _stored_keys(other, "counted")
    keys = [key for key in here.keys() | there if here.get(key) != there.get(key)]
    keys.sort(key=lambda key: ("." in key, key))  # sampler, goal space and seed first
    # Default values do not enter the identity, but the message shows them.
    here, there = _stored_keys(own) | here, _stored_keys(other) | there
    texts = {key: [repr(v[key]) if key in v else "absent" for v in (here, there)] for key in keys}
    # A key that enters only one of the identities may have the same value in both runs.
    keys = [key for key in keys if texts[key][0] != texts[key][1]] or keys
    listed = [f"{key} is {texts[key][0]} here and {texts[key][1]} there" for key in keys[:3]]
    return ", ".join(listed) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _run_metadata(config: RunConfig) -> dict[str, str]:
    return {
        "config": json.dumps(config.model_dump(mode="json"), sort_keys=True),
        "counted": json.dumps(counted(config), sort_keys=True),
        "identity": identity(config),
    }


def encode(state: Mapping[str, Any], serial: int, run: Mapping[str, str]) -> bytes:
    """Return the content of a checkpoint file; `run`: the metadata about run and backbone."""
    tensors: dict[str, torch.Tensor] = {}
    tree = without_arrays(state, tensors)
    metadata = {"version": VERSION, "serial": str(serial), **run, "state": json.dumps(tree)}
    metadata["sha256"] = _checksum(metadata, tensors)
    return save(tensors, metadata)


def decode(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return metadata and state of a checkpoint file.

    Raises:
        DamagedCheckpoint: the file is truncated or was altered.
        OtherFormat: it has another format version.
    """
    try:
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        tensors = load(content)
        _check_version(metadata, tensors)
        if metadata["sha256"] != _checksum(metadata, tensors):
            raise DamagedCheckpoint("its checksum is wrong")
        return metadata, dict(with_arrays(json.loads(metadata["state"]), tensors))
    except OSError as error:
        raise DamagedCheckpoint(f"cannot be read: {error.strerror}") from error
    except (SafetensorError, struct.error, *MALFORMED) as error:
        raise DamagedCheckpoint("truncated or not a checkpoint") from error


def _check_version(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise OtherFormat, unless this code wrote the file and only its version was altered."""
    version = metadata["version"]
    if version == VERSION or not version.isdecimal() or "identity" not in metadata:
        return
    try:
        current = _checksum({**metadata, "version": VERSION}, tensors) == metadata["sha256"]
    except MALFORMED:
        current = False
    if not current:
        raise OtherFormat(version)


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over the metadata, and over name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256()
    for key in _CHECKED:
        digest.update(f"{key} {len(metadata[key])} {metadata[key]}".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def without_arrays(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return a tree as JSON values; arrays move to `tensors`, by their number."""
    name = str(len(tensors))
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(np.array(value, order="C"))
        return {_ARRAY: name}
    if isinstance(value, Mapping):
        return {str(key): without_arrays(inner, tensors) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_arrays(inner, tensors) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def with_arrays(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Invert `without_arrays`."""
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _ARRAY in value:
            return tensors[value[_ARRAY]].numpy()
        return {k: with_arrays(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [with_arrays(v, tensors) for v in value]
    return value
