"""The pretended GPU is as strict as CUDA about where tensors lie, and is gone afterwards."""

import pytest
import torch

from tests.backends.models import make, some_states

if torch.cuda.is_available():
    pytest.skip("there is a real GPU here", allow_module_level=True)
from tests.backends.pretended import OnGpu, pretended_gpu


def test_what_is_computed_there_stays_there_until_it_is_fetched():
    with pretended_gpu():
        made = torch.arange(3.0, device="cuda")
        moved = torch.ones(3).to("cuda", dtype=torch.float64).float()
        both = (made + moved) * 2 + torch.tensor(1.0)
        assert both.device == torch.device("cuda", 0)
        assert both.is_cuda
        assert not both.is_meta
        assert torch.zeros_like(both).is_cuda
        assert both.new_ones(2).is_cuda
        assert both[:2].is_cuda
        assert torch.tensor([1, 2], device="cuda").is_cuda
        assert both[torch.tensor([2, 0])].is_cuda
        here = both.cpu()
        assert type(here) is torch.Tensor
        assert here.device.type == "cpu"
        assert here.tolist() == both.tolist() == [3.0, 5.0, 7.0]


APART = {
    "a sum": lambda here, there: there + here,
    "a product": lambda here, there: here @ there,
    "a sum in place": lambda here, there: here.add_(there),
    "a chain": lambda here, there: torch.cat([here, there]),
    "indices there, values here": lambda here, there: here[there.long()],
    "places here": lambda here, there: there.index_add(0, here.long(), there),
    "numbers in a row": lambda here, there: torch.stack([here.sum(), there.sum()]),
    "a number is written": lambda here, there: here.sum().add_(there.sum()),
    "a place is a number": lambda here, there: there.index_select(0, torch.tensor(1)),
    "values here": lambda here, there: there.index_put_((there.long(),), here),
    "a mask there": lambda here, there: here[there > 1],
    "a choice": lambda here, there: torch.where(here > 1, there, there),
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


def test_only_its_own_devices_are_there():
    with pretended_gpu():
        assert torch.zeros(2, device="meta").is_meta
        with pytest.raises(RuntimeError, match=r"cuda:1: there is one pretended GPU, cuda:0"):
            torch.zeros(2, device="cuda:1")


def test_a_tensor_that_is_there_is_not_copied_there():
    with pretended_gpu():
        there = torch.zeros(3, device="cuda")
        assert there.to("cuda") is there
        assert there.to("cuda", torch.float32) is there
        assert there.to("cuda", torch.float64) is not there
        parts = torch.ones(6, device="cuda")
        layer = torch.nn.Linear(3, 1, bias=False).to("cuda")
        layer.weight.data = parts[3:].view(1, 3)
        parts.add_(1)
        assert layer.weight.tolist() == [[2.0, 2.0, 2.0]]


def test_a_layer_learns_there_as_on_the_cpu():
    weights = []
    for device in ("cpu", "cuda"):
        with pretended_gpu():
            torch.manual_seed(0)
            layer = torch.nn.Linear(4, 2).to(device)
            optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
            layer(torch.ones(3, 4).to(device)).square().sum().backward()
            optimizer.step()
            assert isinstance(layer.weight, OnGpu) is (device == "cuda")
            weights.append(layer.weight.detach().cpu())
    assert torch.equal(*weights)


def test_autocast_keeps_norms_in_float32_and_leaves_float64_alone():
    with pretended_gpu(), torch.autocast("cuda", dtype=torch.bfloat16):
        half = torch.ones(2, 2, device="cuda", dtype=torch.bfloat16)
        assert torch.nn.functional.layer_norm(half, (2,)).dtype == torch.float32
        assert half.softmax(dim=0).dtype == torch.float32
        double = half.double()
        assert (double @ double).dtype == torch.float64


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


def test_afterwards_there_is_no_gpu():
    with pretended_gpu():
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1, device="cuda")


def test_a_backend_that_forgets_to_move_its_tokens_is_found(monkeypatch):
    """What the pretended GPU is for: the same call passes, and fails where a move is left out."""
    with pretended_gpu():
        backend = make("cuda")
        assert len(backend.probabilities(some_states(backend))) == len(some_states(backend))
        monkeypatch.setattr(backend.backbone, "device", torch.device("cpu"))
        with pytest.raises(RuntimeError, match="to be on the same device"):
            backend.probabilities(some_states(backend))
