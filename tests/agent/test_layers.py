"""Short cuts of single layers give what the plain computation gives."""

import pytest
import torch

from magellan.fastpath import layers
from magellan.fastpath.layers import GELU_TANH, SILU, attend, gated_linear
from magellan.fastpath.trie import Rows
from tests.agent.tiny import close, random_weights

STATES, HEADS, WIDTH = 3, 2, 4


def test_one_place_has_no_gradient_to_its_query_and_key():
    """Its weight is 1 whatever the score: rounding must not make a gradient of it."""
    rows = Rows(torch.arange(STATES)[:, None], torch.arange(STATES), None)
    query, key, value = (torch.randn(STATES, HEADS * WIDTH, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, HEADS, 1, 1)
    attend(query, key, value, bias, rows, rows, HEADS).square().sum().backward()
    assert not query.grad.any()
    assert not key.grad.any()
    assert value.grad.any()


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("activation", [GELU_TANH, SILU], ids=["gelu", "silu"])
def test_gates_inside_products_are_gates(monkeypatch, activation, onednn):
    if not onednn:
        monkeypatch.setattr(layers, "HAS_ONEDNN", False)
    given = random_weights((74, 8)).split([50, 12, 12])

    def plain(x, gate, up):
        return activation.forward(x @ gate.t()) * (x @ up.t())

    exact = plain(*(values.double() for values in given))
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            close(gated_linear(activation, *given), plain(*given), exact)
