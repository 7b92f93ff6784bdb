"""What can be asked of the layers of `transformers`: the numbers are those of the plain path."""

import importlib.util

import numpy as np
import pytest
import torch

from benchmarks.shapes import model_folder
from magellan.backends import make_backend
from magellan.backends.machine import settle
from magellan.backends.memory import StoragePeak
from magellan.core.errors import InputError
from magellan.model import backbone
from magellan.model.backbone import Backbone
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.backends.models import (
    check_one_update,
    episodes,
    largest_gap,
    make,
    make_as_for_a_gpu,
    moments,
    prompts,
    some_states,
    transitions,
    undecided,
)

MODELS = pytest.mark.parametrize("model", ["zoo-mini", "t5"])
SEPARATE = {"joint_update": False}


def updated(folder: str, **backend):
    """Losses and moments of one update of each kind."""
    made = make("plain", folder, agent=SEPARATE, **backend)
    losses = made.update_policy(transitions(made)), made.update_competence(episodes(made))
    state = made.state_dict()
    return made, losses, {**moments(state, "sac"), "competence": moments(state, "competence")}


def flat(found):
    return {**{k: v for k, v in found.items() if k != "competence"}, **found["competence"]}


@MODELS
def test_recomputed_layers_give_the_same_numbers_to_the_last_bit(model):
    with model_folder(model) as folder:
        plain, losses, wanted = updated(folder)
        twice, again, found = updated(folder, gradient_checkpointing=True)
        assert again == losses
        for name, values in flat(wanted).items():
            np.testing.assert_array_equal(flat(found)[name], values, err_msg=name)
        peaks = []
        for backend in (plain, twice):
            batch = backend.backbone.batch(*_packed(backend))
            with StoragePeak() as counted:
                backend.agent.probe(batch)
            peaks.append(counted.peak)
        assert peaks[1] < 0.8 * peaks[0]


def _packed(backend):
    batch = transitions(backend)
    return batch.tokens, batch.segments


MERGED = pytest.mark.parametrize("merged", [False, True], ids=["per token", "merged"])


@MODELS
@MERGED
def test_the_way_that_a_gpu_takes_gives_the_same_update(model, merged):
    """What `test_cuda.py` asks of a GPU holds for all of it but the GPU's own rounding."""
    with undecided(model) as (folder, score):
        here, there = make("plain", folder, score), make_as_for_a_gpu(merged, folder, score)
        assert there.passes == "transformers"
        assert there.backbone._model.config._attn_implementation == "sdpa"
        assert (there.backbone._plain is not None) == merged
        check_one_update(here, there)


@MODELS
def test_lengths_that_a_model_sees_are_multiples(model, monkeypatch):
    with model_folder(model) as folder:
        backend = make("plain", folder, length_bucket=16, micro_batch=5)
        lengths, run = [], Backbone._run

        def noted(self, part, adapter, **inputs):
            lengths.append(inputs["input_ids"].shape[1])
            return run(self, part, adapter, **inputs)

        monkeypatch.setattr(Backbone, "_run", noted)
        backend.probabilities(some_states(backend))
        backend.update_policy(transitions(backend))
        backend.competence(prompts(backend))
    assert len(lengths) > 5
    # A decoder that reads its start token alone is as short as that.
    assert {length % 16 for length in lengths if length > 1} == {0}


@pytest.mark.slow
def test_compiled_layers_give_the_same_numbers(monkeypatch):
    """PyTorch reads and splits the layers; programs are not made, which takes minutes."""
    monkeypatch.setattr(backbone, "COMPILER", "eager")
    plain, made = make("plain"), make("plain", compile=True)
    compiled = backbone.repeated_layers(made.backbone.stacks()["decoder"])
    assert all(each._compiled_call_impl is not None for each in compiled)
    found, wanted = (each.update_competence(episodes(each)) for each in (made, plain))
    assert found == pytest.approx(wanted, rel=1e-4)
    gradients = (moments(each.state_dict(), "competence") for each in (made, plain))
    assert largest_gap(*gradients) < 1e-4
    torch._dynamo.reset()


@pytest.mark.parametrize("key", ["gradient_checkpointing", "compile"])
def test_merged_weights_take_neither(key):
    with pytest.raises(InputError, match=f"^backend.{key}: True is not for backbone.lora_mode 'm"):
        make_backend(BackboneConfig(), BackendConfig(**{key: True}))


def test_in_bfloat16_products_with_adapters_are_narrow_and_adapters_are_not():
    backend = make("plain", dtype="bfloat16")
    seen = set()
    for layer in backend.backbone._layers.values():
        layer.lora_A["policy"].register_forward_hook(
            lambda module, given, out: seen.add((given[0].dtype, module.weight.dtype, out.dtype))
        )
    backend.probabilities(some_states(backend))
    assert seen == {(torch.bfloat16, torch.float32, torch.bfloat16)}
    backend.update_policy(transitions(backend))
    adapter = backend.backbone.adapter("policy").values()
    assert {parameter.grad.dtype for parameter in adapter if parameter.grad is not None} == {
        torch.float32
    }


def test_four_bits_without_their_library_are_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^backbone.quantization: 'nf4' needs the package bits"):
        make_backend(BackboneConfig(quantization="nf4", lora_mode="per_token"), BackendConfig())


@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
@MODELS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_four_bits_are_close_to_all_of_them(model, dtype):
    """Weights of 64 normal numbers in 16 steps: policies move, and stay near."""
    with model_folder(model) as folder:
        full = make("plain", folder)
        four = make("plain", folder, four_bits=True, dtype=dtype)
        states, held = some_states(full), prompts(full)
        gaps = np.abs(four.probabilities(states) - full.probabilities(states))
        assert 0 < gaps.max() < 0.5
        assert np.abs(four.competence(held) - full.competence(held)).max() < 0.5
        losses = four.update_policy(transitions(four))
        assert np.isfinite(list(losses.values())).all()
        kinds = {
            "lora" if "lora_" in name else weight.dtype
            for name, weight in four.backbone._peft.named_parameters()
        }
        assert torch.uint8 in kinds
        adapters = four.backbone.adapter("policy").values()
        assert {parameter.dtype for parameter in adapters} == {torch.float32}
        assert all(parameter.grad is not None for parameter in adapters)


def test_a_run_says_which_operations_it_takes():
    try:
        settle(1, deterministic=False)
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        settle(1)
    assert torch.are_deterministic_algorithms_enabled()
