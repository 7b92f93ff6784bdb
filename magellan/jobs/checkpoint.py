"""Checkpoints: a tree of arrays, tensors and JSON values in one safetensors file. Never pickle.

A run keeps its last two in `checkpoints/`. Each holds the resolved configuration, the SHA-256 of
the backbone and that of its own content; if one is damaged, the one before it is used.
"""

from __future__ import annotations

import errno
import fnmatch
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
from magellan.config.phases import truncated
from magellan.core.errors import InputError, shown
from magellan.core.files import PARTIAL, cannot_write, sync_folder, write_atomically
from magellan.jobs.attempts import ancestry
from magellan.model.files import check_backbone, model_digest

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
KEPT = 2
VERSION = "4"  # file format; checkpoints of another version are intact, but unusable here
_ARRAY, _TENSOR = "__array__", "__tensor__"
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that an invalid state raises."""
_CHECKED = ("version", "serial", "config", "counted", "identity", "backbone", "state")


class DamagedCheckpoint(Exception):
    """A checkpoint file whose content is not what was written."""


class OtherFormat(Exception):
    """A checkpoint file written by an older or newer version of this code."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest usable checkpoint, the run that wrote it, and newer, damaged ones."""

    name: str
    state: dict[str, Any]
    run: str
    damaged: tuple[Path, ...] = ()


class Checkpoints:
    """The checkpoints of one run folder, numbered in the order of writing.

    Args:
        folder: folder of the run; the first `save` creates `checkpoints/` in it.
        config: resolved configuration of the run.
        backbone: `model_digest` of the configured backbone; None: computed here.
        argument: option that names the folder, for errors.
        remedies: if another run starts from them, what to do if one is damaged, and if they are of
            another run, for errors: nothing in the folder is changed then. None: this run's own.
        at: length at which the run that wrote them must match `config`; None: its full length.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        backbone: str | None = None,
        argument: str = "--resume",
        remedies: tuple[str, str] | None = None,
        at: int | None = None,
    ) -> None:
        self.folder = folder / FOLDER
        self._own, self._argument, self._at = remedies is None, argument, at
        self._if_damaged, self._if_other = remedies or (
            f"move {self.folder} away to start over",
            "use another --output, or move the checkpoints away to start over",
        )
        self._config, self._in_use = config, in_use(own_code_of(config))
        backbone = backbone or model_digest(check_backbone(config.backbone.model))
        self._metadata = {**_run_metadata(config), "backbone": backbone}

    def at(self, point: str) -> Checkpoints:
        """Return those of this run that are kept for good, at a length of the run."""
        return Checkpoints(self.folder.parent / point, self._config, self._metadata["backbone"])

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
        try:
            if self.folder.is_symlink():  # created since the attempt began
                raise OSError(errno.ELOOP, "it is a symbolic link")
            if not self.folder.is_dir():
                self.folder.mkdir()
                sync_folder(self.folder.parent)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        write_atomically(path, encode(state, serial, self._metadata))
        self._remove(earlier[: 1 - KEPT])
        return path

    def remove_partial(self) -> None:
        """Remove partial files of an interrupted save."""
        self._remove(_entries(self.folder, self._argument, f"*{SUFFIX}{PARTIAL}"))

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                os.unlink(path)
            except OSError as error:
                raise cannot_write(path, error) from error

    def load(self) -> LoadedCheckpoint | None:
        """Return the newest intact checkpoint; None if there is none.

        Changes nothing in the folder: `set_aside` renames newer, damaged ones. In the folder of
        another run these are an error.

        Raises:
            InputError: all are damaged, or the newest intact one has another configuration,
                backbone, version of a user's file or checkpoint format.
        """
        intact, damaged = newest(self.folder, self._argument, f", or {self._if_damaged}")
        if intact is not None:
            path, metadata, state = intact
            self._check_backbone(path, metadata)
            self._check_config(path, self._truncated_metadata(path, metadata))
            self._check_modules(path, state)
            if self._own or not damaged:
                return LoadedCheckpoint(path.name, state, metadata["identity"], tuple(damaged))
        if damaged:
            listed = "; ".join(f"{path} is damaged ({why})" for path, why in damaged.items())
            raise InputError(f"{self._argument}: {listed}; {self._if_damaged}")
        return None

    def set_aside(self, loaded: LoadedCheckpoint) -> str | None:
        """Rename the damaged checkpoints that are newer than `loaded`; return the newest's name.

        Raises:
            StorageError: one cannot be renamed.
        """
        asides = [path.with_name(f"{path.name}.damaged") for path in loaded.damaged]
        for path, aside in zip(loaded.damaged, asides, strict=True):
            try:
                os.replace(path, aside)
            except OSError as error:
                raise cannot_write(path, error) from error
        return asides[0].name if asides else None

    def check_written_by_this_run(self) -> None:
        """Refuse checkpoints that another run has written here; unreadable ones are ignored.

        Raises:
            InputError: another configuration or backbone.
        """
        for path in self.paths():
            try:
                with safe_open(path, "pt") as file:
                    metadata = {name: file.metadata()[name] for name in _CHECKED}
                state = json.loads(metadata["state"])
            except (OSError, SafetensorError, RecursionError, *MALFORMED):
                continue
            self._check_backbone(path, metadata)
            self._check_config(path, metadata)
            self._check_modules(path, state)

    def _check_backbone(self, path: Path, metadata: Mapping[str, str]) -> None:
        here, there = self._metadata["backbone"], metadata["backbone"]
        if there != here:
            stored = _stored_keys(metadata).get("backbone.model")
            raise InputError(
                f"{self._argument}: {path} belongs to a run with another backbone: backbone.model "
                f"is {shown(self._config.backbone.model)} with SHA-256 {here[:12]} here and "
                f"{shown(stored)} with {there[:12]} there; {self._if_other}"
            )

    def _check_modules(self, path: Path, state: Mapping[str, Any]) -> None:
        """Check that all attempts behind the state used the user's files as they are now."""
        for attempt in ancestry(state):
            for name, (_, stored) in in_use(attempt).items():
                file, current = self._in_use.get(name, ("", stored))
                if current != stored:
                    raise InputError(
                        f"{self._argument}: {path} belongs to a run with another version of a file "
                        f"under modules: {shown(file)} with {name} has SHA-256 {current[:12]} here "
                        f"and {stored[:12]} there; restore that version, or {self._if_other}"
                    )

    def _truncated_metadata(self, path: Path, metadata: dict[str, str]) -> dict[str, str]:
        """Metadata of the run that ends at `at`."""
        if self._at is None:
            return metadata
        modules = self._config.modules
        try:
            values = dict(json.loads(metadata["config"]))
            config = stored_config(values, metadata["identity"], modules, path)
        except InputError as error:
            raise InputError(f"{self._argument}: {error}") from None
        except (*MALFORMED, RecursionError):
            raise InputError(
                f"{self._argument}: {path} holds no configuration; {self._if_damaged}"
            ) from None
        if self._at > config.budget.end:
            raise InputError(
                f"{self._argument}: {path}: its run ends at {config.budget.end} "
                f"{config.budget.unit}, before {self._at}; {self._if_other}"
            )
        return metadata | _run_metadata(truncated(config, self._at))

    def _check_config(self, path: Path, metadata: Mapping[str, str]) -> None:
        own = self._metadata
        if metadata["identity"] == own["identity"]:
            return
        current, stored = _stored_keys(own, "counted"), _stored_keys(metadata, "counted")
        keys = [key for key in current.keys() | stored if current.get(key) != stored.get(key)]
        keys.sort(key=lambda key: ("." in key, key))  # sampler, goal space and seed first
        # Default values do not enter the identity, but the message shows them.
        current, stored = _stored_keys(own) | current, _stored_keys(metadata) | stored
        # A key that enters only one of the identities may have the same value in both runs.
        keys = [key for key in keys if _value(current, key) != _value(stored, key)] or keys
        listed = ", ".join(
            f"{key} is {_value(current, key)} here and {_value(stored, key)} there"
            for key in keys[:3]
        )
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        raise InputError(
            f"{self._argument}: {path} belongs to a run with another configuration: "
            f"{listed}{more}; {self._if_other}"
        )


def paths_in(folder: Path, argument: str) -> list[Path]:
    """Return the checkpoint files in a folder `checkpoints`, oldest first.

    argument: option that names the run's folder, for the error.

    Raises:
        InputError: the folder cannot be read.
    """
    paths = _entries(folder, argument, f"*{SUFFIX}")
    return sorted(path for path in paths if path.name.removesuffix(SUFFIX).isdecimal())


def _entries(folder: Path, argument: str, pattern: str) -> list[Path]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"{argument}: {folder} cannot be read ({error.strerror})") from error
    return [folder / name for name in fnmatch.filter(names, pattern)]


def newest(
    folder: Path, argument: str, otherwise: str = ""
) -> tuple[tuple[Path, dict[str, str], dict[str, Any]] | None, dict[Path, str]]:
    """Return the newest intact checkpoint in a folder `checkpoints`, whichever run wrote it.

    Args:
        folder: the folder.
        argument: option that names the run's folder, for errors.
        otherwise: another remedy for checkpoints of another format, for errors.

    Returns:
        its path, metadata and state (None if none is intact); newer, damaged ones with the reason.

    Raises:
        InputError: the folder cannot be read, or the newest intact one has another format.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(paths_in(folder, argument)):
        try:
            return (path, *decode(path)), damaged
        except DamagedCheckpoint as error:
            damaged[path] = str(error)
        except OtherFormat as error:
            raise InputError(
                f"{argument}: {path} has format version {error}; allowed: {VERSION}; continue with "
                f"the code that wrote it{otherwise}"
            ) from None
    return None, damaged


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
    except (*MALFORMED, RecursionError):
        return {}


def _value(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"


def _run_metadata(config: RunConfig) -> dict[str, str]:
    """Metadata that identify a checkpoint's run."""
    return {
        "config": json.dumps(config.model_dump(mode="json"), sort_keys=True),
        "counted": json.dumps(counted(config), sort_keys=True),
        "identity": identity(config),
    }


def encode(state: Mapping[str, Any], serial: int, run: Mapping[str, str]) -> bytes:
    """Return the content of a checkpoint file; `run`: the metadata about run and backbone."""
    tensors: dict[str, torch.Tensor] = {}
    tree = without_arrays(state, "", tensors)
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
    except (SafetensorError, struct.error, RecursionError, *MALFORMED) as error:
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


def without_arrays(value: Any, key: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Return a tree as JSON values; arrays move to `tensors`, by their path in the tree."""
    while key in tensors:  # two paths may be joined to one
        key += "'"
    if isinstance(value, torch.Tensor):
        tensors[key] = value.detach().contiguous().clone()
        return {_TENSOR: key}
    if isinstance(value, np.ndarray):
        tensors[key] = torch.from_numpy(np.array(value, order="C"))
        return {_ARRAY: key}
    if isinstance(value, Mapping):
        return {str(k): without_arrays(v, f"{key}/{k}", tensors) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_arrays(v, f"{key}/{i}", tensors) for i, v in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    return value


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
