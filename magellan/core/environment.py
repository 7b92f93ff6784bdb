"""Environment variables to set before the numerical libraries are imported."""

from __future__ import annotations

import os

READ_ONCE = {
    # Large tensors on huge pages: PyTorch reads this before its first tensor.
    "THP_MEM_ALLOC_ENABLE": "1",
    # For deterministic cuBLAS: PyTorch reads this at the first product on a GPU; if it is unset
    # then, deterministic products fail in this process.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # No downloads in a job: huggingface_hub reads this when imported.
    "HF_HUB_OFFLINE": "1",
}
"""Variables that libraries read only once, with their values."""


def prepare() -> None:
    """Set the variables in `READ_ONCE` that are not set."""
    for name, value in READ_ONCE.items():
        os.environ.setdefault(name, value)


def prepare_threads(threads: int) -> None:
    """Set the number of threads of the numerical libraries, before they are imported."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
