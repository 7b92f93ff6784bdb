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


@pytest.fixture
def factors():
    return torch.ones(30, 40, requires_grad=True), torch.ones(40, 50, requires_grad=True)


def test_products_are_counted_with_their_backward(factors):
    left, right = factors
    assert gflop(lambda: left @ right) == pytest.approx(FORWARD)
    assert gflop(lambda: (left @ right).sum().backward()) == pytest.approx(3 * FORWARD)


@pytest.mark.parametrize("name", ["addmm", "addmm_", "linear inside", "linear times"])
def test_products_with_something_added_are_counted(factors, name):
    left, right = (factor.detach() for factor in factors)
    product = torch.ops.mkldnn._linear_pointwise
    if "linear" in name and not HAS_ONEDNN:
        pytest.skip("no oneDNN")
    operation = {
        "addmm": lambda: torch.addmm(torch.ones(30, 50), left, right),
        "addmm_": lambda: torch.ones(30, 50).addmm_(left, right),
        "linear inside": lambda: product(left, right.t(), None, "gelu", [], "tanh"),
        "linear times": lambda: product(left, torch.ones(30, 50), right.t(), None, "mul"),
    }[name]
    assert gflop(operation) == pytest.approx(FORWARD)


def test_batched_products_and_repeats_are_counted():
    left, right = torch.ones(7, 3, 4), torch.ones(7, 4, 5)
    total = gflop(lambda: [torch.bmm(left, right) for _ in range(2)])
    assert total == pytest.approx(2 * 7 * 2 * 3 * 4 * 5 / 1e9)


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
