"""Heads give the same with and without gradients; Adam is PyTorch's, bit by bit."""

import pytest
import torch
from torch import nn

from magellan.agent.learning import Adam, apply_head, mlp


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("hidden", [(8,), (24, 24)])
def test_the_same_without_gradients(hidden, activation):
    generator = torch.Generator().manual_seed(0)
    head = mlp(6, hidden, activation, generator)
    features = torch.randn(3, 5, 6, generator=generator)
    expected = apply_head(head, features)
    with torch.no_grad():
        torch.testing.assert_close(apply_head(head, features), expected.detach())
    assert expected.shape == (3, 5)


def test_what_is_not_finite_is_kept():
    head = mlp(6, (8, 8), nn.ReLU, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert apply_head(head, torch.full((2, 6), torch.nan)).isnan().all()


SHAPES = [(16, 64), (192, 16), (7,), ()]


def parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in SHAPES]


def pull(own, other, step: int, resting: int | None) -> None:
    """The same gradients for both, none for the one that rests."""
    generator = torch.Generator().manual_seed(step)
    for number, pair in enumerate(zip(own, other, strict=True)):
        gradient = torch.randn(pair[0].shape, generator=generator)
        for parameter in pair:
            parameter.grad = None if number == resting else gradient.clone()


def state_of(optimizer: torch.optim.Adam) -> dict[str, dict[str, torch.Tensor]]:
    return {str(number): dict(v) for number, v in optimizer.state_dict()["state"].items()}


def same(state, other) -> bool:
    return state.keys() == other.keys() and all(
        torch.equal(state[key][name], other[key][name])
        for key in state
        for name in ("step", "exp_avg", "exp_avg_sq")
    )


def test_steps_and_state_are_pytorchs():
    own, other = parameters(), parameters()
    adam, torchs = Adam(own, 1e-2), torch.optim.Adam(other, 1e-2, fused=True)
    assert adam.state() == {}
    for step, resting in enumerate([1, None, 2, None, None]):
        pull(own, other, step, resting)
        adam.step()
        torchs.step()
        assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))
        assert same(adam.state(), state_of(torchs))


def test_its_state_goes_on_where_it_was():
    own, other = parameters(), parameters()
    first, second = Adam(own, 1e-2), Adam(other, 1e-2)
    for step in range(3):
        pull(own, other, step, 0)
        first.step()
    pull(own, other, 9, None)
    second.step()  # something to forget
    second.load(first.state())
    with torch.no_grad():
        for parameter, copy in zip(own, other, strict=True):
            copy.copy_(parameter)
    assert same(first.state(), second.state())
    pull(own, other, 4, None)
    first.step()
    second.step()
    assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))
