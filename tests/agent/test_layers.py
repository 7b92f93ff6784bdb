"""Short cuts of single layers give what the plain computation gives."""

import pytest
import torch

from magellan.fastpath import layers
from magellan.fastpath.layers import GELU_TANH, SILU, attend, gated_linear
from magellan.fastpath.trie import Rows

STATES, LENGTH, HEADS, WIDTH = 3, 7, 2, 4


@pytest.fixture
def rows():
    nodes = torch.arange(STATES * LENGTH)
    return Rows(nodes.view(STATES, LENGTH), nodes, None)


def attention(rows, size, little_hidden):
    """Attention and its gradients, with scores of a few times `size` squared."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(STATES * LENGTH, HEADS * WIDTH, generator=generator) for _ in range(3)]
    query, key, value = (
        (tensor * scale).requires_grad_()
        for tensor, scale in zip(inputs, (size, size, 1.0), strict=True)
    )
    bias = torch.randn(1, HEADS, LENGTH, LENGTH, generator=generator)
    mixed = attend(query, key, value, bias, rows, rows, HEADS, little_hidden)
    mixed.square().sum().backward()
    with torch.no_grad():
        alone = attend(query, key, value, bias, rows, rows, HEADS, little_hidden)
    return mixed.detach(), alone, query.grad, key.grad, value.grad


@pytest.mark.parametrize("size", [0.1, 1.0, 12.0], ids=["near", "usual", "beyond exp"])
def test_the_quicker_softmax_is_the_softmax(rows, size):
    for quick, plain in zip(
        attention(rows, size, little_hidden=True),
        attention(rows, size, little_hidden=False),
        strict=True,
    ):
        assert plain.isfinite().all()
        torch.testing.assert_close(quick, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offset", [-200.0, 200.0])
def test_scores_far_from_zero_lose_no_digits(rows, offset):
    """exp(-200) is 0 and exp(200) infinite in float32."""
    zeros = torch.zeros(STATES * LENGTH, HEADS * WIDTH)
    value = torch.randn(zeros.shape, generator=torch.Generator().manual_seed(0))
    bias = torch.full((1, HEADS, LENGTH, LENGTH), offset)
    mixed = attend(zeros, zeros, value, bias, rows, rows, HEADS, little_hidden=True)
    mean = value.view(STATES, LENGTH, -1).mean(dim=1, keepdim=True).expand(-1, LENGTH, -1)
    torch.testing.assert_close(mixed.view(mean.shape), mean, rtol=1e-5, atol=1e-6)


def test_one_place_has_no_gradient_to_its_query_and_key():
    """Its weight is 1 whatever the score: rounding must not make a gradient of it."""
    rows = Rows(torch.arange(STATES)[:, None], torch.arange(STATES), None)
    query, key, value = (torch.randn(STATES, HEADS * WIDTH, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, HEADS, 1, 1)
    attend(query, key, value, bias, rows, rows, HEADS, little_hidden=True).square().sum().backward()
    assert not query.grad.any()
    assert not key.grad.any()
    assert value.grad.any()


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("activation", [GELU_TANH, SILU], ids=["gelu", "silu"])
def test_gates_inside_products_are_gates(monkeypatch, activation, onednn):
    if not onednn:
        monkeypatch.setattr(layers, "HAS_ONEDNN", False)
    x, gate, up = torch.randn(50, 8), torch.randn(12, 8), torch.randn(12, 8)
    expected = activation.forward(x @ gate.t()) * (x @ up.t())
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found = gated_linear(activation, x, gate, up)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
