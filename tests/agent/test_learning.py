"""Heads give the same with and without gradients; Adam's state goes on where it was."""

import pytest
import torch
from torch import nn

from magellan.agent.learning import adam, load_state, mlp, state_of, value


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


SHAPES = [(16, 64), (192, 16), (7,), ()]


def parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in SHAPES]


def pull(optimizer, moved: list[torch.Tensor], step: int, resting: int | None) -> None:
    """One step along gradients of its own; one parameter rests."""
    generator = torch.Generator().manual_seed(step)
    for number, parameter in enumerate(moved):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if number == resting else gradient
    optimizer.step()


def test_its_state_goes_on_where_it_was():
    own, other = parameters(), parameters()
    first, second = adam(own, 1e-2), adam(other, 1e-2)
    assert state_of(first) == {}
    for step in range(3):
        pull(first, own, step, 0)
    assert list(state_of(first)) == ["1", "2", "3"]
    pull(second, other, 9, None)  # something to forget
    with torch.no_grad():
        for mine, others in zip(own, other, strict=True):
            others.copy_(mine)
    load_state(second, state_of(first))
    for optimizer, moved in ((first, own), (second, other)):
        pull(optimizer, moved, 4, None)
    assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))
