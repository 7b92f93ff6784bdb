"""Products of an operation: which there are, and their arithmetic."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.device import DeviceBenchmark, device_configuration
from benchmarks.products import Products
from benchmarks.timed import Deadline
from magellan.agent.replay import Episodes
from magellan.fastpath.layers import HAS_ONEDNN

FORWARD = 2 * 30 * 40 * 50 / 1e9


def gflop(operation) -> float:
    with Products() as products:
        operation()
    return products.gflop


LINEAR = torch.ops.mkldnn._linear_pointwise if HAS_ONEDNN else None
OTHER = torch.ones(30, 50)
# An operation on factors of 30 x 40 and 40 x 50, and how many products it is.
OPERATIONS = {
    "twice": (lambda left, right: [left @ right, left @ right], 2),
    "with its backward": (lambda left, right: (left.requires_grad_() @ right).sum().backward(), 2),
    "batched": (lambda left, right: left.expand(7, -1, -1) @ right.expand(7, -1, -1), 7),
    "added": (lambda left, right: torch.addmm(OTHER, left, right), 1),
    "added in place": (lambda left, right: OTHER.clone().addmm_(left, right), 1),
    "inside": (lambda left, right: LINEAR(left, right.t(), None, "gelu", [], "tanh"), 1),
    "times": (lambda left, right: LINEAR(left, OTHER, right.t(), None, "mul"), 1),
}


@pytest.mark.parametrize("name", OPERATIONS if HAS_ONEDNN else list(OPERATIONS)[:-2])
def test_products_are_counted(name):
    operation, count = OPERATIONS[name]
    left, right = torch.ones(30, 40), torch.ones(40, 50)
    assert gflop(lambda: operation(left, right)) == pytest.approx(count * FORWARD)


def test_an_update_is_counted_as_the_library_counts_it():
    """The library's counter does not know sums in place; with gradients there are none."""
    passes = {"backbone": {"passes": "torch"}}
    config = device_configuration("zoo-mini", 10, "cpu", None, [passes])
    bench = DeviceBenchmark(config, Deadline(1.0))
    prompts = bench._prompts("400", 16)
    episodes = Episodes(*prompts, (np.arange(16) % 2).astype(np.float32))

    def update() -> None:
        bench.backend.update_competence(episodes)

    with FlopCounterMode(display=False) as counter:
        update()
    assert gflop(update) == pytest.approx(counter.get_total_flops() / 1e9, rel=0.05)
