"""Devices: the CPU, or a GPU through CUDA."""

from __future__ import annotations

import torch

from magellan.core.errors import not_allowed

CPU = torch.device("cpu")
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether products of oneDNN are at hand: not a public interface of PyTorch."""


def find_device(name: str) -> torch.device:
    """The device called `cpu`, `cuda`, `cuda:N`, or `auto`, which is `cuda` where there is a GPU.

    Raises:
        InputError: the GPU is absent.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CPU
    reason = _missing_gpu(name)
    if reason:
        allowed = "cpu, or auto, which takes cuda where there is one"
        raise not_allowed("backend.device", name, allowed, f": {reason}")
    return torch.device("cuda" if name == "auto" else name)


def check_format(device: torch.device, dtype: str) -> None:
    """Raise InputError if the device does not compute in this number format."""
    if dtype == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        why = f" on {device_name(device)}, which does not compute with it"
        raise not_allowed("backend.dtype", dtype, "float32", why)


def device_name(device: torch.device) -> str:
    """Name of a device, such as `cpu` or `cuda (NVIDIA H200)`."""
    if device.type != "cuda":
        return device.type
    return f"{device} ({torch.cuda.get_device_name(device)})"


def _missing_gpu(name: str) -> str:
    """Why there is no such GPU; empty where there is one."""
    if not torch.backends.cuda.is_built():
        return "PyTorch was built without it here"
    if not torch.cuda.is_available():
        return "PyTorch finds no such GPU here"
    count, index = torch.cuda.device_count(), torch.device(name).index if name != "auto" else None
    if index is not None and index >= count:
        return f"PyTorch finds {count} GPU{'s' * (count != 1)} here, the first is cuda:0"
    return ""
