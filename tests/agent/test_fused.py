"""Fused layers give what the modules as loaded give."""

import re

import pytest
import torch

from magellan.core.codec import stack
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.fused import _adapted
from magellan.model.packing import PAIR, PackedBatch
from magellan.model.scoring import prompt_features, score_candidates
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.agent import tiny

MODELS = {
    "t5": ("t5", {}),
    "flan": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "llama": ("llama", {"num_key_value_heads": 2}),
    "biased": ("llama", {"attention_bias": True}),
    "qwen2": ("qwen2", {}),  # whose adapters alone are fused
    "gpt2": ("gpt2", {}),  # whose layers hold their weights transposed
}

DTYPES = pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]
)


@pytest.mark.parametrize("targets", ["attention_qv", "all_linear"])
@DTYPES
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_the_modules_give(name, dtype, targets, tmp_path):
    found, library, states = make(name, dtype, targets, tmp_path)
    results = read(found, states), read(library, states)
    with tiny.in_float64(library):
        exact = read(library, states)
    for some, other, true in zip(*results, exact, strict=True):
        tiny.close(some, other, true)


def test_no_tokens_are_read_too():
    """Of a prompt shorter than a block LongT5 has none for its global attention."""
    x, weight, down, up = (torch.zeros(*shape) for shape in ((2, 0, 4), (6, 4), (3, 4), (6, 3)))
    assert _adapted(x, weight, None, [slice(0, 6)], 1.0, down, up)[0].shape == (2, 0, 6)


@DTYPES
@pytest.mark.parametrize("name", ["t5", "flan", "llama", "biased"])
def test_a_pair_in_one_pass_is_what_each_gives(name, dtype, tmp_path):
    backbone, library, states = make(name, dtype, "all_linear", tmp_path)
    assert backbone.reads_pairs
    for seed in (2, 3):
        for model in (backbone, library):
            tiny.set_adapters(model, 0.05, seed)
        with torch.no_grad():
            pair = score_candidates(backbone, PAIR, states.twice()).halves()
            each = read_each(backbone, states)
            with tiny.in_float64(library):
                exact = read_each(library, states)
        for some, other, true in zip(pair, each, exact, strict=True):
            assert torch.equal(some.slots, true.slots)
            values = ([each.log_policy, each.features] for each in (some, other, true))
            tiny.close(*values)


def read_each(backbone, states):
    return [score_candidates(backbone, adapter, states) for adapter in PAIR.split()]


def make(name, dtype, targets, path):
    """A model with its layers fused, and as loaded; and states for both."""
    family, settings = MODELS[name]
    tiny.write(path, family, **settings)
    lora = {"lora_mode": "per_token", "lora_rank": 3, "lora_targets": targets}
    config = BackboneConfig(model=str(path), **lora)
    found = randomized(config, dtype)
    with tiny.as_loaded():
        library = randomized(config, dtype)
    return found, library, PackedBatch(*stack(tiny.random_states(5, 9, words=6, longest=8)))


def randomized(config, dtype):
    """Gains, biases and adapters that matter."""
    backbone = Backbone(config, seed=1, backend=BackendConfig(dtype=dtype))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in backbone._model.named_parameters():
            if "norm" in name or name.endswith(("ln_f.weight", "bias")):
                parameter.uniform_(0.5, 1.5, generator=generator)
    return tiny.set_adapters(backbone, 0.05, seed=2)


def read(backbone, states):
    """Scores of two adapters, features without gradients, and gradients of two backward passes."""
    with torch.no_grad():
        features = [prompt_features(backbone, adapter, states) for adapter in ADAPTERS]
    for _ in range(2):  # as micro-batches do, between which no adapter changes
        scores = score_candidates(backbone, "policy", states)
        tiny.weighted_sum(scores).backward()
    order = scores.slots.argsort()
    gradients = tiny.gradients_of(backbone, "policy")
    return [scores.log_policy, scores.features[order], features, gradients]


@pytest.mark.parametrize(
    ("name", "targets"), [("llama", {"q_proj", "v_proj"}), ("t5", {"q", "v"}), ("gpt2", {"c_attn"})]
)
def test_targets_are_chosen_within_the_last_layers(name, targets, tmp_path):
    tiny.write(tmp_path, MODELS[name][0])  # of two layers
    adapter = Backbone(BackboneConfig(model=str(tmp_path), lora_layers=1)).adapter("policy")
    assert {key.rsplit(".", 2)[1] for key in adapter} == targets
    assert {re.search(r"\.(?:layers|h|block)\.(\d)\.", key)[1] for key in adapter} == {"1"}
