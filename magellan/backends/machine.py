"""This machine: its processor, and the settings of the numerical library."""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from pathlib import Path

from magellan.core.environment import prepare

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
_KEEP = 1 << 30  # bytes
_WIDTH, _SECONDS = 384, 0.05  # of the products that `core_speed` times


def configure_torch(threads: int, deterministic: bool = True) -> None:
    """Prepare this process for a run: `threads` threads, reproducible numbers, cheap allocation.

    Without `deterministic` a GPU may sum in any order; a CPU keeps its order either way.

    PyTorch's filling of new tensors with NaN, which exposes reads of unwritten memory, is switched
    off. glibc returns large blocks to the system at every free and maps them, zeroed page by page,
    at every allocation: `mallopt` makes it keep them. Programs of this package set what libraries
    read once before loading them (`magellan/core/environment.py`); `prepare` here serves others.
    """
    import torch

    torch.set_num_threads(threads)
    prepare()
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if sys.platform == "linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(_M_MMAP_THRESHOLD, _KEEP)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
        except (OSError, AttributeError):
            return  # another C library: slower, same numbers


def cpu_model() -> str:
    """Name of the processor as the system reports it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def core_speed() -> float:
    """GFLOP/s of one core in float32 matrix products: the best in 0.05 s, in CPU time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left = torch.full((_WIDTH, _WIDTH), 0.5, dtype=torch.float32, device="cpu")
        out = torch.empty_like(left)
        torch.mm(left, left, out=out)
        end = time.perf_counter() + _SECONDS
        seconds: list[float] = []
        while not seconds or time.perf_counter() < end:
            wall, cpu = time.perf_counter(), time.thread_time()
            torch.mm(left, left, out=out)
            # Wall time where the CPU clock is too coarse.
            seconds.append(time.thread_time() - cpu or time.perf_counter() - wall)
    finally:
        torch.set_num_threads(threads)
    return 2e-9 * _WIDTH**3 / min(seconds)
