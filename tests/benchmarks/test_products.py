"""Products of an operation: which there are, and their arithmetic."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.products import Products
from benchmarks.shapes import SHAPES, model_folder
from magellan.backends import make_backend
from magellan.competence.learned import LearnedSettings
from magellan.model import loading
from magellan.model.backbone import GPU_BUCKET
from magellan.model.devices import HAS_ONEDNN
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from tests.agent.tiny import close
from tests.backends.models import make, prompts, some_states, update

FORWARD = 2 * 30 * 40 * 50 / 1e9


def gflop(operation) -> float:
    with Products() as products:
        operation()
    return products.gflop


LINEAR = torch.ops.mkldnn._linear_pointwise if HAS_ONEDNN else None
OTHER = torch.ones(30, 50)
MANY = OTHER[None]
# An operation on factors of 30 x 40 and 40 x 50, and how many products it is.
OPERATIONS = {
    "twice": (lambda left, right: [left @ right, left @ right], 2),
    "with its backward": (lambda left, right: (left.requires_grad_() @ right).sum().backward(), 2),
    "batched": (lambda left, right: left.expand(7, -1, -1) @ right.expand(7, -1, -1), 7),
    "added": (lambda left, right: torch.addmm(OTHER, left, right), 1),
    "added in place": (lambda left, right: OTHER.clone().addmm_(left, right), 1),
    "batched in place": (lambda left, right: MANY.clone().baddbmm_(left[None], right[None]), 1),
    "inside": (lambda left, right: LINEAR(left, right.t(), None, "gelu", [], "tanh"), 1),
    "times": (lambda left, right: LINEAR(left, OTHER, right.t(), None, "mul"), 1),
}


@pytest.mark.parametrize("name", OPERATIONS if HAS_ONEDNN else list(OPERATIONS)[:-2])
def test_products_are_counted(name):
    operation, count = OPERATIONS[name]
    left, right = torch.ones(30, 40), torch.ones(40, 50)
    assert gflop(lambda: operation(left, right)) == pytest.approx(count * FORWARD)


def test_an_update_is_counted_as_the_library_counts_it():
    """The library's counter does not know sums in place; with gradients there are none."""
    backend = make("torch")
    with FlopCounterMode(display=False) as counter:
        update(backend, "competence")
    expected = pytest.approx(counter.get_total_flops() / 1e9, rel=0.05)
    assert gflop(lambda: update(backend, "competence")) == expected


NARROW = {"d_model": 48, "d_kv": 8, "d_ff": 64, "num_heads": 6, "vocab_size": 128}
NARROW |= {"hidden_size": 72, "intermediate_size": 96, "vocab_size": 128}
BOUNDS = {
    "flan-t5-base-shape": (900, 3_500, 1_700, 700),
    "smollm2-135m-shape": (900, 4_200, 1_700, 700),
}
"""Of an acting pass, a SAC update, a competence update and a refresh of at most 512 goals."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", BOUNDS)
def test_kernels_of_a_pass_are_few(name, dtype, monkeypatch):
    """At full depth, by the way that a GPU takes; the width changes no count."""
    narrow = {key: NARROW.get(key, size) for key, size in SHAPES[name].items()}
    monkeypatch.setitem(SHAPES, name, narrow)
    monkeypatch.setattr(loading, "attention_on", lambda device: None)
    with model_folder(name) as folder:
        backend = make_backend(
            BackboneConfig(model=folder, lora_mode="per_token"), BackendConfig(dtype=dtype)
        )
    backend.backbone._bucket = GPU_BUCKET
    backend.start_policy(AgentConfig(actor_warmup_updates=0, critic_hidden=(8,) * 2), 0)
    backend.start_competence(LearnedSettings(hidden=8), 0)
    held = backend.cache_prompts(prompts(backend))
    operations = (
        lambda: backend.probabilities(some_states(backend)),
        lambda: update(backend, "sac"),
        lambda: update(backend, "competence"),
        lambda: backend.competence(held),
    )
    for operation, bound in zip(operations, BOUNDS[name], strict=True):
        operation()  # the moments of the optimizers, and what is kept
        with Products() as products:
            operation()
        assert 100 < products.kernels <= bound, products.calls.most_common(9)


def test_a_norm_is_one_call():
    x = torch.randn(3, 8, requires_grad=True)
    weight = torch.rand(8)
    plain = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)
    with Products() as products:
        counted = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)
        gradient = torch.autograd.grad(counted.square().sum(), x)[0]
    norms = {key: n for key, n in products.calls.items() if "norm" in key}
    assert norms == {"_fused_rms_norm": 1, "_fused_rms_norm_backward": 1}
    exact = torch.nn.functional.rms_norm(x.double(), (8,), weight.double(), 1e-6)
    expected = torch.autograd.grad(exact.square().sum(), x)[0]
    library = torch.autograd.grad(plain.square().sum(), x)[0]
    close([counted, gradient], [plain, library], [exact, expected])
