"""Heads give the same with and without gradients; an optimizer goes on where it was."""

import pytest
import torch
from torch import nn

from magellan.agent.learning import adam, adam_state, apply_head, load_adam, mlp
from tests.agent.tiny import close, in_float64


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("hidden", [(8,), (24, 24)])
def test_the_same_without_gradients(hidden, activation):
    generator = torch.Generator().manual_seed(0)
    head = mlp(6, hidden, activation, generator)
    features = torch.randn(3, 5, 6, generator=generator)
    expected = apply_head(head, features)
    with torch.no_grad():
        found = apply_head(head, features)
        with in_float64(head):
            close(found, expected, apply_head(head, features.double()))
    assert expected.shape == (3, 5)


def test_what_is_not_finite_is_kept():
    head = mlp(6, (8, 8), nn.ReLU, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert apply_head(head, torch.full((2, 6), torch.nan)).isnan().all()


def test_adam_goes_on_where_it_was():
    """One parameter rests until the state is saved."""
    generator = torch.Generator().manual_seed(0)
    own = [torch.randn(shape, generator=generator).requires_grad_() for shape in [(4, 3), (7,), ()]]
    other = [parameter.detach().clone().requires_grad_() for parameter in own]
    first, second = adam(own, 1e-2), adam(other, 1e-2)

    def step(optimizer, parameters, seed, resting=None):
        generator = torch.Generator().manual_seed(seed)
        for number, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if number == resting else gradient
        optimizer.step()

    step(first, own, 1, resting=1)
    step(second, other, 2)  # something to forget
    load_adam(second, adam_state(first))
    with torch.no_grad():
        for parameter, copy in zip(own, other, strict=True):
            copy.copy_(parameter)
    assert adam_state(second).keys() == {"0", "2"}
    step(first, own, 3)
    assert not torch.equal(own[0], other[0])  # states are not shared
    step(second, other, 3)
    assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))
