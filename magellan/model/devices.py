"""Where tensors live: the processor, or a GPU through CUDA."""

from __future__ import annotations

import torch

from magellan.core.errors import InputError

CPU = torch.device("cpu")


def find_device(name: str) -> torch.device:
    """The device of this name: `cpu`, `cuda`, `cuda:N`, or `auto`, `cuda` where there is one.

    Raises:
        InputError: a GPU is asked for and absent.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CPU
    reason = _lack(name)
    if reason:
        raise InputError(
            f"backend.device: {name!r} is not allowed: {reason}; allowed: cpu, or auto, which "
            "takes cuda where there is one"
        )
    return torch.device("cuda" if name == "auto" else name)


def check_format(device: torch.device, dtype: str) -> None:
    """The device must compute with numbers of this format.

    Raises:
        InputError: it does not.
    """
    if dtype == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise InputError(
            f"backend.dtype: {dtype!r} is not allowed on {described(device)}, which does not "
            "compute with it; allowed: float32"
        )


def described(device: torch.device) -> str:
    """The device in words, such as `cpu` or `cuda (NVIDIA H200)`."""
    if device.type != "cuda":
        return device.type
    return f"{device} ({torch.cuda.get_device_name(device)})"


def _lack(name: str) -> str:
    """Why there is no such GPU; empty where there is."""
    if not torch.backends.cuda.is_built():
        return "PyTorch was built without it here"
    if not torch.cuda.is_available():
        return "PyTorch finds no such GPU here"
    there, wanted = torch.cuda.device_count(), torch.device(name).index if name != "auto" else None
    if wanted is not None and wanted >= there:
        return f"PyTorch finds {there} GPU{'s' * (there != 1)} here, the first is cuda:0"
    return ""
