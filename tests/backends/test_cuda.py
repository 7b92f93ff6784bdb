"""What a GPU adds; the rest of its tests stand beside those of the other ways.

The numbers of the plain path on a CPU are the reference. Where there is no GPU these run on a
pretended one, which shows that every tensor is where it is read; what needs a GPU's own kernels or
memory is skipped.
"""

import pytest
import torch

from tests import runs
from tests.backends.models import make, needs_cuda, on_a_gpu, some_states

pytestmark = on_a_gpu


def config(episodes: int, **backend):
    """A small run that reads its adapters per token."""
    return runs.config(
        goal_space="40-8-4-2-2",
        budget={"episodes": episodes},
        backbone={"lora_mode": "per_token"},
        backend=backend,
    )


@needs_cuda  # a CPU repeats itself anyway
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_tables(tmp_path, dtype):
    run = config(40, device="cuda", dtype=dtype)
    first, second = (runs.trained(run, tmp_path / name) for name in ("first", "second"))
    assert runs.tables(first) == runs.tables(second)


@pytest.mark.slow
@pytest.mark.parametrize("order", [("cuda", "cpu"), ("cpu", "cuda")], ids=["down", "up"])
def test_a_run_that_was_stopped_goes_on_on_the_other_device(tmp_path, order):
    from magellan.jobs.checkpoint import Checkpoints
    from magellan.training.loop import Trainer

    first, second = (config(60, device=device) for device in order)
    stopped = Trainer(first)
    for _ in range(8):
        stopped.advance()
    (tmp_path / "checkpoints").mkdir()
    Checkpoints(tmp_path, first, "digest").save({"trainer": stopped.state_dict()})
    resumed = Trainer(second)
    resumed.load_state_dict(Checkpoints(tmp_path, second, "digest").load().state["trainer"])
    assert resumed.updates == stopped.updates > 0
    assert runs.finish(resumed).updates > stopped.updates


def test_a_gpu_that_is_one_too_many_is_one_line():
    from magellan.model.devices import find_device

    count = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"'cuda:{count}' is not allowed: PyTorch finds {count} "):
        find_device(f"cuda:{count}")


def test_a_backend_that_forgets_to_move_its_tokens_is_found(monkeypatch):
    """What a pretended GPU is for: the same call passes, and fails where a move is left out."""
    backend = make("cuda")
    states = some_states(backend)
    assert len(backend.probabilities(states)) == len(states)
    monkeypatch.setattr(backend.backbone, "device", torch.device("cpu"))
    with pytest.raises(RuntimeError, match="to be on the same device"):
        backend.probabilities(states)
