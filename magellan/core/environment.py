"""What has to be said before the numerical libraries are loaded. Imports none of them."""

from __future__ import annotations

import os

READ_ONCE = {
    # Large tensors on large pages: PyTorch looks at this before its first tensor.
    "THP_MEM_ALLOC_ENABLE": "1",
    # What cuBLAS wants for the same numbers every time: PyTorch looks at this at the first product
    # on a GPU, and refuses deterministic products for good if it was not there then.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # A job downloads nothing: the hub's library looks at this when it is imported.
    "HF_HUB_OFFLINE": "1",
}
"""Variables that a library reads once, and their values."""


def prepare() -> None:
    """Set them where nobody has set them."""
    for name, value in READ_ONCE.items():
        os.environ.setdefault(name, value)


def prepare_threads(threads: int) -> None:
    """Say how many threads the numerical libraries are to use, before they are imported."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
