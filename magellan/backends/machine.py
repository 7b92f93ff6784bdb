"""How the numerical library uses this machine: threads, determinism, memory."""

from __future__ import annotations

import ctypes
import sys

import torch

from magellan.first import prepare

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
_KEEP = 1 << 30


def settle(threads: int, deterministic: bool = True) -> None:
    """Prepare this process for a run: `threads` threads, the same numbers every time, no waste.

    Without `deterministic` a GPU may add in any order; a CPU keeps its order either way.

    Deterministic algorithms would also fill every new tensor with NaN, which shows reads of memory
    that was never written; this code is tested without. glibc gives large blocks back to the system
    at every free and takes them, zeroed page by page, at every allocation: it is told to keep them.
    What libraries read once is set before they are loaded (`magellan/first.py`), by whatever starts
    the process; here only for who imports this package from a program of his own.
    """
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
            return  # another C library: slower, and just as right
