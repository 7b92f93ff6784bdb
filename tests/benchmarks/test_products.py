"""Products of an operation: which there are, their arithmetic, their time alone."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import models, products
from benchmarks.products import measure, record
from magellan.fastpath.layers import HAS_ONEDNN

FORWARD = 2 * 30 * 40 * 50 / 1e9


@pytest.fixture
def factors():
    return torch.ones(30, 40, requires_grad=True), torch.ones(40, 50, requires_grad=True)


def test_products_are_counted_with_their_backward(factors):
    left, right = factors
    assert record(lambda: left @ right).gflop == pytest.approx(FORWARD)
    assert record(lambda: (left @ right).sum().backward()).gflop == pytest.approx(3 * FORWARD)


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
    recorded = record(operation)
    assert recorded.gflop == pytest.approx(FORWARD)
    (forms,) = recorded.calls
    assert [shape for shape, _ in forms] == [(30, 40), (40, 50)]


def test_batched_products_and_repeats_are_counted():
    left, right = torch.ones(7, 3, 4), torch.ones(7, 4, 5)
    recorded = record(lambda: [torch.bmm(left, right) for _ in range(2)])
    assert recorded.gflop == pytest.approx(2 * 7 * 2 * 3 * 4 * 5 / 1e9)
    assert list(recorded.calls.values()) == [2]


def test_an_update_is_counted_as_the_library_counts_it():
    """The library's counter does not know sums in place; with gradients there are none."""
    bench = models.ModelBenchmark(models.make_trainer("zoo-mini", "400"))
    bench.fill()
    with FlopCounterMode(display=False) as counter:
        bench.competence_update()
    assert record(bench.competence_update).gflop == pytest.approx(
        counter.get_total_flops() / 1e9, rel=0.05
    )


def test_the_time_alone_is_that_of_each_product(monkeypatch):
    """Two products of one form and one of another, said to take 0.25 s and 1 s."""
    timed = []

    def seconds(operation, repetitions):
        operation()
        timed.append(repetitions)
        return 0.25 if len(timed) == 1 else 1.0

    monkeypatch.setattr(products, "median_seconds", seconds)
    square, wide = torch.ones(4, 4), torch.ones(4, 4).t()
    recorded = record(lambda: (square @ square, square @ square, square @ wide))
    assert recorded.seconds() == pytest.approx(2 * 0.25 + 1.0)
    assert timed == [products.REPETITIONS] * 2


def test_measuring_records_one_call_and_times_the_others():
    matrix, calls = torch.ones(10, 10), []

    def operation():
        calls.append(matrix @ matrix)

    timing = measure(operation, repetitions=4)
    assert len(calls) == 5
    assert timing.repetitions == 4
    assert timing.gflop == pytest.approx(2_000 / 1e9)
    assert timing.alone > 0
