"""How many operations a device can do: by its data sheet where it is known, else by measuring."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import torch

PEAKS = {
    # Words of a device's name -> dense TFLOP/s of matrix products with float32 sums, by the maker's
    # data sheet: bfloat16 on tensor cores, float32 without them (as here: no TF32). The
    # first whose whole words are there: an RTX A4000 is no A40.
    "GB200": (2500.0, 80.0),
    "B200": (2250.0, 75.0),
    "H200 NVL": (835.5, 60.0),
    "H200": (989.4, 66.9),
    "GH200": (989.4, 66.9),
    "H100 PCIe": (756.0, 51.2),
    "H100 NVL": (835.5, 60.0),
    "H100": (989.4, 66.9),
    "A100": (312.0, 19.5),
    "A40": (149.7, 37.4),
    "A30": (165.0, 10.3),
    "L40S": (362.05, 91.6),
    "L40": (181.05, 90.5),
    "L4": (121.0, 30.3),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
}
SQUARE = {"cuda": 8192, "cpu": 1024}
SECONDS, LEAST, MOST = 1.0, 3, 200


@dataclass(frozen=True)
class Peak:
    """What shares of the peak refer to.

    tflops: 10^12 operations per second of dense matrix products in the benchmark's format.
    source: where that is from, in words.
    product: the same as measured here with one large product.
    """

    tflops: float
    source: str
    product: float


def data_sheet(name: str) -> str | None:
    """The words of `PEAKS` that a device's name has; None without any."""
    if "Laptop" in name:  # other chips under the same number
        return None
    return next((words for words in PEAKS if re.search(rf"\b{words}\b", name)), None)


def peak_of(name: str, device: torch.device, dtype: torch.dtype) -> Peak:
    """The peak of a device.

    Args:
        name: as `torch.cuda.get_device_name` gives it.
        device: where the product is measured.
        dtype: bfloat16 or float32.
    """
    product = product_rate(device, dtype)
    words = str(dtype).removeprefix("torch.")
    found = data_sheet(name)
    if device.type == "cuda" and found is not None:
        tflops = PEAKS[found][0 if dtype == torch.bfloat16 else 1]
        return Peak(tflops, f"data sheet of {found}, dense {words}", product)
    size = SQUARE[device.type]
    return Peak(product, f"measured: {size} x {size} product in {words}", product)


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of one large square product: the best of its repetitions within a second."""
    size = SQUARE[device.type]
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    best, spent, done = float("inf"), 0.0, 0
    while done < LEAST or (spent < SECONDS and done < MOST):
        synchronize(device)
        start = time.perf_counter()
        torch.mm(left, left, out=out)
        synchronize(device)
        seconds = time.perf_counter() - start
        best, spent, done = min(best, seconds), spent + seconds, done + 1
    return 2 * size**3 / best / 1e12


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
