"""What can be asked of the layers of `transformers`: the numbers are those of the plain path."""

import importlib.util

import numpy as np
import pytest
import torch

from benchmarks.shapes import model_folder
from magellan.backends import make_backend
from magellan.backends.machine import configure_torch
from magellan.core.errors import InputError
from magellan.model.backbone import GPU_BUCKET, Backbone
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.backends.models import (
    MODELS,
    check_same_update,
    make,
    make_as_for_a_gpu,
    moments,
    on_a_gpu,
    packed_states,
    prompts,
    references,
    some_states,
    transitions,
    undecided,
    update_both,
    updated,
)


@MODELS
def test_recomputed_layers_give_the_same_numbers_to_the_last_bit(model):
    losses, gradients, saved = [], [], []
    with model_folder(model) as folder:
        for recomputed in (False, True):
            agent = {"joint_update": False}
            backend = make("plain", folder, agent, gradient_checkpointing=recomputed)
            losses.append(update_both(backend))
            state = backend.state_dict()
            gradients.append({**moments(state, "sac"), **moments(state, "competence")})
            batch = packed_states(backend)
            kept = []

            def keep(tensor, kept=kept):
                kept.append(tensor.nbytes)
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                backend.agent.probe(batch)
            saved.append(sum(kept))
    assert losses[1] == losses[0]
    for name, values in gradients[0].items():
        np.testing.assert_array_equal(gradients[1][name], values, err_msg=name)
    assert saved[1] < 0.8 * saved[0]


@MODELS
@pytest.mark.parametrize(
    "way",
    ["fused", "torch", *(pytest.param(way, marks=on_a_gpu) for way in ("cuda", "cuda merged"))],
)
def test_the_way_that_a_gpu_takes_gives_the_same_update(model, way):
    """Also on a CPU, which shows all of it but the GPU's own rounding."""
    with undecided(model) as (folder, score):
        there = (make if "cuda" in way else make_as_for_a_gpu)(way, folder, score)
        assert there.passes == "transformers"
        assert there.backbone._model.config._attn_implementation == "sdpa"
        assert packed_states(there).tokens.shape[1] % GPU_BUCKET == 0
        for learner in ("sac", "competence"):
            check_same_update(updated(there, learner), references(learner, folder, score))


@MODELS
def test_lengths_that_a_model_sees_are_multiples(model, monkeypatch):
    with model_folder(model) as folder:
        backend = make_as_for_a_gpu("fused", folder, micro_batch=5)
        lengths, run = [], Backbone._run

        def record_length(self, part, adapter, **inputs):
            lengths.append(inputs["input_ids"].shape[1])
            return run(self, part, adapter, **inputs)

        monkeypatch.setattr(Backbone, "_run", record_length)
        backend.probabilities(some_states(backend))
        backend.update_policy(transitions(backend))
        backend.competence(prompts(backend))
    assert len(lengths) > 5
    # A decoder that reads its start token alone is as short as that.
    assert {length % GPU_BUCKET for length in lengths if length > 1} == {0}


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


def test_deterministic_operations_can_be_switched_off():
    try:
        configure_torch(1, deterministic=False)
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        configure_torch(1)
    assert torch.are_deterministic_algorithms_enabled()
