"""The pretended GPU is as strict as CUDA about where tensors lie, and is gone afterwards."""

import pytest
import torch

from tests.backends.models import make, some_states

if torch.cuda.is_available():
    pytest.skip("there is a real GPU here", allow_module_level=True)
from tests.backends.pretended import pretended_gpu

APART = {
    "a sum": lambda here, there: there + here,
    "indices there, values here": lambda here, there: here[there.long()],
    "places here": lambda here, there: there.index_add(0, here.long(), there),
    "a number is written": lambda here, there: here.sum().add_(there.sum()),
}


@pytest.mark.parametrize("case", APART)
def test_two_devices_in_one_call_are_refused(case):
    with pretended_gpu():
        here, there = torch.arange(3.0), torch.arange(3.0, device="cuda")
        with pytest.raises(RuntimeError, match=r"to be on the same device, but .* cuda:0 and cpu"):
            APART[case](here, there)


def test_numpy_and_a_generator_of_the_cpu_are_refused():
    with pretended_gpu():
        there = torch.zeros(3, device="cuda")
        with pytest.raises((RuntimeError, TypeError), match="numpy"):
            there.numpy()
        for draw in (
            lambda of: there.normal_(generator=of),
            lambda of: torch.rand(3, device="cuda", generator=of),
        ):
            with pytest.raises(RuntimeError, match="'cuda' device type for generator"):
                draw(torch.Generator())


def test_autocast_lowers_products_and_what_is_read_again_for_gradients():
    seen = []

    def layer(values):
        seen.append((values @ values).dtype)
        return (values @ values).float()

    with pretended_gpu():
        values = torch.ones(2, 2, device="cuda", requires_grad=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            again = torch.utils.checkpoint.checkpoint(layer, values, use_reentrant=False)
        again.sum().backward()
        assert values.grad is not None
        assert values.grad.is_cuda
        assert values.grad.dtype == torch.float32
    assert seen == [torch.bfloat16, torch.bfloat16]


def test_a_backend_that_forgets_to_move_its_tokens_is_found(monkeypatch):
    """What the pretended GPU is for: the same call passes, and fails where a move is left out."""
    with pretended_gpu():
        backend = make("cuda")
        assert len(backend.probabilities(some_states(backend))) == len(some_states(backend))
        monkeypatch.setattr(backend.backbone, "device", torch.device("cpu"))
        with pytest.raises(RuntimeError, match="to be on the same device"):
            backend.probabilities(some_states(backend))
