"""Heads give the same with and without gradients, whatever multiplies."""

import pytest
import torch
from torch import nn

from magellan.agent.learning import mlp, value


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("hidden", [(8,), (24, 24)])
def test_the_same_without_gradients(hidden, activation):
    generator = torch.Generator().manual_seed(0)
    head = mlp(6, hidden, activation, generator)
    features = torch.randn(3, 5, 6, generator=generator)
    wanted = value(head, features)
    with torch.no_grad():
        torch.testing.assert_close(value(head, features), wanted.detach())
    assert wanted.shape == (3, 5)


def test_what_is_not_finite_is_kept():
    head = mlp(6, (8, 8), nn.ReLU, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert value(head, torch.full((2, 6), torch.nan)).isnan().all()
