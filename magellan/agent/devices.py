"""Where tensors live: the processor, or a GPU through CUDA."""

from __future__ import annotations

import torch

from magellan.errors import InputError

CPU = torch.device("cpu")


def find_device(name: str) -> torch.device:
    """The device of this name: `cpu`, `cuda`, or `auto`, which is `cuda` where there is one.

    Raises:
        InputError: `cuda` is asked for and absent.
    """
    there = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not there:
        raise InputError(
            f"backend.device: 'cuda' is not allowed: {_reason()}; allowed: cpu, or auto, which "
            "takes cuda where there is one"
        )
    return torch.device("cuda") if there else CPU


def described(device: torch.device) -> str:
    """The device in words, such as `cpu` or `cuda (NVIDIA H200)`."""
    if device.type != "cuda":
        return device.type
    return f"{device.type} ({torch.cuda.get_device_name(device)})"


def _reason() -> str:
    if not torch.backends.cuda.is_built():
        return "PyTorch was built without it here"
    return "PyTorch finds no such GPU here"
