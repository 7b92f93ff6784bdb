"""Checkpoints: a tree of arrays, tensors and JSON values in one safetensors file. Never pickle.

A run keeps its last two in `checkpoints/`. Each holds the resolved configuration, the SHA-256 of
the backbone and one over everything in it; one that is damaged gives way to the one before.
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
from safetensors import SafetensorError
from safetensors.torch import load, save

from magellan.config import (
    RunConfig,
    check_backbone,
    counted,
    flat_keys,
    identity,
    own_code_of,
    part,
    stored_config,
)
from magellan.config.modules import in_use
from magellan.core.errors import InputError, shown
from magellan.core.files import PARTIAL, cannot_write, sync_folder, write_atomically
from magellan.jobs.attempts import ancestry
from magellan.model.files import model_digest

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
KEPT = 2
MOST_METADATA = 1 << 28  # bytes; what is longer is no checkpoint
# Format of the files. A checkpoint of another one is whole, but not for this code.
VERSION = "4"
_ARRAY, _TENSOR = "__array__", "__tensor__"
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a state that no run has written leads to."""
_CHECKED = ("version", "serial", "config", "counted", "identity", "backbone", "state")


class DamagedCheckpoint(Exception):
    """A file that cannot be read back as it was written."""


class OtherFormat(Exception):
    """A file that an older or newer version of this code has written."""


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that can be used, the run that wrote it, and newer ones, damaged."""

    name: str
    state: dict[str, Any]
    run: str
    damaged: tuple[Path, ...] = ()


class Checkpoints:
    """The checkpoints of one run folder, numbered in the order of writing.

    Args:
        folder: folder of the run; `checkpoints/` in it is made by the first `save`.
        config: resolved configuration of the run.
        backbone: `model_digest` of the configured backbone; reckoned where it is not given.
        own: false where another run starts from them: nothing in the folder is changed.
        argument: that names the folder, for errors; None: `--resume`, or `--start` of another run.
        at: length of the other run when it kept what is here: up to there it has to be the run of
            `config`. None: as a whole.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        backbone: str | None = None,
        own: bool = True,
        argument: str | None = None,
        at: int | None = None,
    ) -> None:
        self.folder = folder / FOLDER
        self._own, self._at = own, at
        self._argument = argument or ("--resume" if own else "--start")
        self._anew = f"move {self.folder} away to start over"
        self._other = "use another --output, or move the checkpoints away to start over"
        if not own and argument is not None:
            self._anew = "name another checkpoint of this run"
            self._other = "name a checkpoint of this very run"
        elif not own:
            self._anew = f"remove {folder} and train that run again"
            self._other = "name the run that has the phases before the last one"
            there = folder / str(config.budget.end)
            if there.is_dir():
                self._other += f"; allowed: {there}, which it keeps"
        if at is not None:
            self._anew = f"move {folder.parent} away and train that run again"
            self._other = f"name a run that is the same up to {at} {config.budget.unit}"
        self._config, self._in_use = config, in_use(own_code_of(config))
        self._backbone = backbone or model_digest(check_backbone(config.backbone.model))

    def paths(self) -> list[Path]:
        """Files of the checkpoints, oldest first."""
        return paths_in(self.folder, self._argument)

    def save(self, state: Mapping[str, Any]) -> Path:
        """Write the next checkpoint, whole or not at all, then drop all but the last two.

        Raises:
            StorageError: the two newest that were there are untouched.
        """
        before = self.paths()
        serial = 1 + (int(before[-1].stem) if before else 0)
        path = self.folder / f"{serial:08d}{SUFFIX}"
        try:
            if self.folder.is_symlink():  # put there since the attempt began
                raise OSError(errno.ELOOP, "it is a symbolic link")
            if not self.folder.is_dir():
                self.folder.mkdir()
                sync_folder(self.folder.parent)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        write_atomically(path, encode(state, serial, self._config, self._backbone))
        self._remove(before[: 1 - KEPT])
        return path

    def remove_partial(self) -> None:
        """Remove what a killed save left half written."""
        self._remove(_entries(self.folder, self._argument, f"*{SUFFIX}{PARTIAL}"))

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                os.unlink(path)
            except OSError as error:
                raise cannot_write(path, error) from error

    def load(self) -> Found | None:
        """The newest checkpoint that is whole; None where there is none.

        Nothing in the folder changes: `set_aside` is for damaged ones that are newer. In the folder
        of another run these are an error.

        Raises:
            InputError: all are damaged, or the newest whole one belongs to another configuration,
                another backbone, another version of a user's file or another format of checkpoints.
        """
        whole, damaged = newest(self.folder, self._argument, f", or {self._anew}")
        if whole is not None:
            path, metadata, state = whole
            self._check_backbone(path, metadata)
            self._check_config(path, self._up_to_there(path, metadata))
            self._check_modules(path, state)
            if self._own or not damaged:
                return Found(path.name, state, metadata["identity"], tuple(damaged))
        if damaged:
            listed = "; ".join(f"{path} is damaged ({why})" for path, why in damaged.items())
            raise InputError(f"{self._argument}: {listed}; {self._anew}")
        return None

    def set_aside(self, found: Found) -> str | None:
        """Rename damaged checkpoints that are newer than the one found; the newest one's name.

        None of them is removed.

        Raises:
            StorageError: one cannot be renamed.
        """
        renamed = [_set_aside(path) for path in found.damaged]
        return renamed[0] if renamed else None

    def check_kept_by_this_run(self) -> None:
        """Refuse checkpoints that another run has written here.

        One that cannot be read passes: it is nobody's.

        Raises:
            InputError: another configuration or backbone.
        """
        for path in self.paths():
            try:
                metadata = _read_metadata(path)
                state = json.loads(metadata["state"])
            except (OSError, struct.error, RecursionError, *MALFORMED):
                continue
            self._check_backbone(path, metadata)
            self._check_config(path, metadata)
            self._check_modules(path, state)

    def _check_backbone(self, path: Path, metadata: Mapping[str, str]) -> None:
        if metadata["backbone"] == self._backbone:
            return
        there = _stored(metadata).get("backbone.model")
        raise InputError(
            f"{self._argument}: {path} belongs to a run with another backbone: backbone.model is "
            f"{shown(self._config.backbone.model)} with SHA-256 {self._backbone[:12]} here and "
            f"{shown(there)} with {metadata['backbone'][:12]} there; {self._other}"
        )

    def _check_modules(self, path: Path, state: Mapping[str, Any]) -> None:
        """What is used of a user's files had the same bytes in all attempts behind the state."""
        for made in ancestry(state):
            for name, (_, there) in in_use(made).items():
                file, here = self._in_use.get(name, ("", there))
                if here != there:
                    raise InputError(
                        f"{self._argument}: {path} belongs to a run with another version of a file "
                        f"under modules: {shown(file)} with {name} has SHA-256 {here[:12]} here "
                        f"and {there[:12]} there; put that version back, or {self._other}"
                    )

    def _up_to_there(self, path: Path, metadata: dict[str, str]) -> dict[str, str]:
        """Metadata as a run has it that ended where this one was kept."""
        if self._at is None:
            return metadata
        modules = self._config.modules
        try:
            values = dict(json.loads(metadata["config"]))
            whole = stored_config(values, metadata["identity"], modules, path)
        except InputError as error:
            raise InputError(f"{self._argument}: {error}") from None
        except (*MALFORMED, RecursionError):
            raise InputError(
                f"{self._argument}: {path} holds no configuration; {self._anew}"
            ) from None
        if self._at > whole.budget.end:
            raise InputError(
                f"{self._argument}: {path}: its run ends at {whole.budget.end} "
                f"{whole.budget.unit}, before {self._at}; {self._other}"
            )
        return metadata | _described(part(whole, self._at))

    def _check_config(self, path: Path, metadata: Mapping[str, str]) -> None:
        if metadata["identity"] == identity(self._config):
            return
        here, there = counted(self._config), _stored(metadata, "counted")
        keys = [key for key in here.keys() | there if here.get(key) != there.get(key)]
        keys.sort(key=lambda key: ("." in key, key))  # sampler, goal space and seed first
        # A value that is the default is not counted, and shown all the same.
        here = flat_keys(self._config.model_dump(mode="json")) | here
        there = _stored(metadata) | there
        # One that counts for one of the two runs only may have one value in both.
        keys = [key for key in keys if _shown(here, key) != _shown(there, key)] or keys
        listed = ", ".join(
            f"{key} is {_shown(here, key)} here and {_shown(there, key)} there" for key in keys[:3]
        )
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        raise InputError(
            f"{self._argument}: {path} belongs to a run with another configuration: "
            f"{listed}{more}; {self._other}"
        )


def paths_in(folder: Path, argument: str) -> list[Path]:
    """Files of the checkpoints in a folder `checkpoints`, oldest first.

    argument: that names the run's folder, for the error.

    Raises:
        InputError: the folder cannot be read.
    """
    found = _entries(folder, argument, f"*{SUFFIX}")
    return sorted(path for path in found if path.name.removesuffix(SUFFIX).isdecimal())


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
    """The newest checkpoint in a folder `checkpoints` that is whole, unchecked.

    Args:
        folder: that one.
        argument: that names the run's folder, for errors.
        otherwise: what else can be done about another format.

    Returns:
        its path, metadata and state, None where none is whole; and newer ones, damaged, with what
        is wrong with them.

    Raises:
        InputError: the folder cannot be read, or the newest whole one is of another format.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(paths_in(folder, argument)):
        try:
            return (path, *decode(path)), damaged
        except DamagedCheckpoint as error:
            damaged[path] = str(error)
        except OtherFormat as error:
            raise InputError(
                f"{argument}: {path} has format version {error}; allowed: {VERSION}; go on with "
                f"the code that wrote it{otherwise}"
            ) from None
    return None, damaged


def does_not_fit(place: str, error: Exception) -> InputError:
    """The error that a user sees for a state that no run of this code has written."""
    return InputError(
        f"{place} does not fit this version of the code ({type(error).__name__}); move the "
        "checkpoints away to start over"
    )


def _stored(metadata: Mapping[str, str], name: str = "config") -> dict[str, Any]:
    """Flat keys of a configuration in a checkpoint; none where it is no configuration."""
    try:
        return flat_keys(json.loads(metadata[name]))
    except (*MALFORMED, RecursionError):
        return {}


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"


def _set_aside(path: Path) -> str:
    aside = path.with_name(f"{path.name}.damaged")
    try:
        os.replace(path, aside)
    except OSError as error:
        raise cannot_write(path, error) from error
    return aside.name


def _described(config: RunConfig) -> dict[str, str]:
    """What the metadata of a checkpoint say of its run."""
    return {
        "config": json.dumps(config.model_dump(mode="json"), sort_keys=True),
        "counted": json.dumps(counted(config), sort_keys=True),
        "identity": identity(config),
    }


def encode(state: Mapping[str, Any], serial: int, config: RunConfig, backbone: str) -> bytes:
    """Content of a checkpoint file; `backbone` is the SHA-256 of its files."""
    tensors: dict[str, torch.Tensor] = {}
    tree = without_arrays(state, "", tensors)
    metadata = {
        "version": VERSION,
        "serial": str(serial),
        **_described(config),
        "backbone": backbone,
        "state": json.dumps(tree),
    }
    metadata["sha256"] = _checksum(metadata, tensors)
    return save(tensors, metadata)


def _read_metadata(path: Path) -> dict[str, str]:
    """Metadata alone, unchecked."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(min(length, MOST_METADATA)))["__metadata__"]
    return {name: metadata[name] for name in _CHECKED[2:]}


def decode(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and state of a checkpoint file.

    Raises:
        DamagedCheckpoint: the file is cut short or holds anything else than what was written.
        OtherFormat: it is of another format version.
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
        raise DamagedCheckpoint("cut short or no checkpoint") from error


def _check_version(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Another format, unless all but the number of the version is as this code has written it."""
    version = metadata["version"]
    if version == VERSION or not version.isdecimal() or "identity" not in metadata:
        return
    try:
        ours = _checksum({**metadata, "version": VERSION}, tensors) == metadata["sha256"]
    except MALFORMED:
        ours = False
    if not ours:
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
    """JSON form of a tree; arrays go to `tensors` under their path and leave a mark."""
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
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _ARRAY in value:
            return tensors[value[_ARRAY]].numpy()
        return {k: with_arrays(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [with_arrays(v, tensors) for v in value]
    return value
