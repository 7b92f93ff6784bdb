"""Checkpoints: a tree of arrays, tensors and JSON values in one safetensors file. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from magellan.errors import InputError
from magellan.training.record import write_atomically

NAME = "checkpoint.safetensors"
_ARRAY, _TENSOR = "__array__", "__tensor__"


def save_checkpoint(folder: Path, state: Mapping[str, Any], config_hash: str) -> None:
    """Write `state` to folder/checkpoint.safetensors, whole or not at all."""
    tensors: dict[str, torch.Tensor] = {}
    tree = _without_arrays(state, "", tensors)
    metadata = {"state": json.dumps(tree), "config_hash": config_hash, "version": "1"}
    write_atomically(folder / NAME, save(tensors, metadata))


def load_checkpoint(folder: Path, config_hash: str) -> dict[str, Any] | None:
    """Read the checkpoint of a folder, or None where there is none.

    Raises:
        InputError: the file is damaged, or was written by a run with another configuration.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        tree = json.loads(metadata["state"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"--resume: {path} is damaged ({error}); remove it to start over"
        ) from error
    if metadata["config_hash"] != config_hash:
        raise InputError(
            f"--resume: {path} belongs to a run with another configuration; use another --output, "
            "or remove it to start over"
        )
    return _with_arrays(tree, tensors)


def _without_arrays(value: Any, key: str, tensors: dict[str, torch.Tensor]) -> Any:
    """JSON form of a tree; arrays go to `tensors` under their path and leave a mark."""
    if isinstance(value, torch.Tensor):
        tensors[key] = value.detach().contiguous().clone()
        return {_TENSOR: key}
    if isinstance(value, np.ndarray):
        tensors[key] = torch.from_numpy(np.array(value, order="C"))
        return {_ARRAY: key}
    if isinstance(value, Mapping):
        return {str(k): _without_arrays(v, f"{key}/{k}", tensors) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(v, f"{key}/{i}", tensors) for i, v in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _with_arrays(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _ARRAY in value:
            return tensors[value[_ARRAY]].numpy()
        return {k: _with_arrays(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_arrays(v, tensors) for v in value]
    return value
