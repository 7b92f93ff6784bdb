"""What a GPU adds; the rest of its tests stand beside those of the other ways.

The numbers of the plain path on a CPU are the reference. Where there is no GPU these run on a
pretended one, which shows that every tensor is where it is read; what needs a GPU's own kernels or
memory is skipped.
"""

import pytest
import torch

from magellan.config import resolve_run
from magellan.jobs.run import train
from tests.backends.models import (
    check_one_update,
    make,
    needs_cuda,
    on_a_gpu,
    transitions,
    undecided,
)

pytestmark = on_a_gpu
MODELS = pytest.mark.parametrize("model", ["zoo-mini", "t5"])
WAYS = pytest.mark.parametrize("way", ["cuda", "cuda merged"])
TABLES = ("evaluation.csv", "competence.csv", "practice.csv", "training.csv")
SPACE = "40-8-4-2-2"


def run(folder, **backend):
    """Tables of a small run on a GPU, as bytes."""
    layer = {
        "sampler": "magellan",
        "goal_space": SPACE,
        "seed": 3,
        "budget": {"episodes": 40},
        "backbone": {"lora_mode": "per_token"},
        "backend": {"device": "cuda", **backend},
    }
    train(resolve_run("smoke", [layer]), folder, resume=False, progress="none")
    return {name: (folder / name).read_bytes() for name in TABLES}


@needs_cuda  # a CPU repeats itself anyway
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_tables(tmp_path, dtype):
    assert run(tmp_path / "one", dtype=dtype) == run(tmp_path / "two", dtype=dtype)


@pytest.mark.slow
@MODELS
@WAYS
def test_one_update_is_that_of_a_cpu(model, way):
    """`test_layers.py` has the same for the way that a GPU takes, on a CPU."""
    with undecided(model) as (folder, score):
        check_one_update(*(make(each, folder, score) for each in ("plain", way)))


@pytest.mark.slow
@pytest.mark.parametrize("order", [("cuda", "cpu"), ("cpu", "cuda")], ids=["down", "up"])
def test_a_run_that_was_stopped_goes_on_on_the_other_device(tmp_path, order):
    from magellan.jobs.checkpoint import Checkpoints
    from magellan.training.loop import Trainer

    def config(device: str):
        layer = {"sampler": "magellan", "goal_space": SPACE, "backend": {"device": device}}
        more = {"backbone": {"lora_mode": "per_token"}, "budget": {"episodes": 60}}
        return resolve_run("smoke", [{**layer, **more}])

    begun = Trainer(config(order[0]))
    for _ in range(8):
        begun.advance()
    begun_at = begun.updates
    (tmp_path / "checkpoints").mkdir()
    Checkpoints(tmp_path, config(order[0]), "digest").save({"trainer": begun.state_dict()})
    found = Checkpoints(tmp_path, config(order[1]), "digest").load()
    moved = Trainer(config(order[1]))
    moved.load_state_dict(found.state["trainer"])
    assert moved.updates == begun_at > 0
    while not moved.done:
        moved.advance()
    assert moved.updates > begun_at


def test_attention_on_a_gpu_is_fused_and_lengths_repeat():
    backend = make("cuda")
    assert backend.backbone._model.config._attn_implementation == "sdpa"
    assert backend.backbone.batch(*_packed(backend)).tokens.shape[1] % 16 == 0


def _packed(backend):
    batch = transitions(backend)
    return batch.tokens, batch.segments


def test_a_gpu_that_is_one_too_many_is_one_line():
    from magellan.model.devices import find_device

    there = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"'cuda:{there}' is not allowed: PyTorch finds {there} "):
        find_device(f"cuda:{there}")
