"""Written-out passes give what the modules of `transformers` give, and the same gradients."""

import itertools

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from magellan.core.codec import PROMPT, PackedState, stack
from magellan.model import packing
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.files import check_backbone
from magellan.model.packing import PackedBatch
from magellan.model.scoring import candidate_features, prompt_features, score_candidates
from magellan.model.settings import BackboneConfig
from tests.agent import tiny
from tests.agent.tiny import close, needs_compiler

THREE = {"num_hidden_layers": 3}


def llama(width: int, inner: int, heads: int, keys: int, head_dim: int) -> tuple[str, dict]:
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_attention_heads": heads}
    return "llama", {**sizes, "num_key_value_heads": keys, "head_dim": head_dim}


MODELS = {
    "llama": ("llama", THREE),
    "grouped": ("llama", {**THREE, "num_key_value_heads": 2}),
    "one layer": ("llama", {"num_hidden_layers": 1}),
    "odd": llama(21, 37, heads=3, keys=3, head_dim=6),
    "odd groups": llama(36, 50, heads=6, keys=2, head_dim=10),
    "one key head": llama(48, 16, heads=4, keys=1, head_dim=34),
    "zoo-mini": None,
    "zoo-reader": None,
    "t5": ("t5", {}),
    "flan": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}


CAUSAL = [name for name in MODELS if name not in ("t5", "flan")]
READ = [
    *((name, "torch") for name in MODELS),
    *(pytest.param((name, "compiled"), marks=needs_compiler) for name in CAUSAL),
]


@pytest.fixture(scope="module", params=READ, ids=lambda param: " ".join(param))
def pair(request, tmp_path_factory) -> tuple[Backbone, Backbone]:
    """The same model and adapters, read by a written-out pass and by `transformers`."""
    name, passes = request.param
    path = tmp_path_factory.mktemp("model")
    tokenizer = AutoTokenizer.from_pretrained(check_backbone("zoo-mini"))
    torch.manual_seed(3)
    if MODELS[name] is None:
        model = AutoModelForCausalLM.from_pretrained(check_backbone(name))
    else:
        family, settings = MODELS[name]
        model = tiny.model(family, len(tokenizer), **settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # gains of one would hide a gain that is left out
                parameter.uniform_(0.5, 1.5)
    tiny.save(path, model, tokenizer)
    return make_backbone(path, passes=passes), make_backbone(path, lora_mode="per_token")


def make_backbone(path, **settings) -> Backbone:
    config = BackboneConfig(model=str(path), lora_targets="all_linear", lora_rank=3, **settings)
    return tiny.set_adapters(Backbone(config, seed=1), 0.05, seed=2)


def random_batch(seed: int) -> PackedBatch:
    """States of many lengths, one of them twice."""
    states = tiny.random_states(seed, 9, words=6, longest=8)
    return PackedBatch(*stack([*states, states[0]]))


def test_no_position_is_beyond_the_longest_prompt_with_its_action():
    """So that a model with a table of just so many positions reads a padded batch."""
    batch = random_batch(1)
    segments = batch.segment_array
    prompts = (segments == PROMPT).sum(axis=1)
    branches = [np.bincount(row[row > PROMPT]).max(initial=0) for row in segments]
    assert int(batch.positions.max()) == (prompts + branches).max() - 1


@pytest.fixture(params=[256, 4], ids=["one piece", "several pieces"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(packing, "PIECE", request.param)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("score", ["logit_sum", "log_prob_sum"])
@pytest.mark.parametrize("gradients", [False, True])
def test_scores_equal_the_librarys(pair, score, gradients):
    own, library = pair
    for seed in range(3):
        with torch.set_grad_enabled(gradients):
            a, b = (
                score_candidates(m, "policy", random_batch(seed), score) for m in (own, library)
            )
        close(a.log_policy.detach(), b.log_policy.detach())
        assert torch.equal(a.valid, b.valid)
        order_a, order_b = a.slots.argsort(), b.slots.argsort()
        assert torch.equal(a.slots[order_a], b.slots[order_b])
        close(a.features[order_a].detach(), b.features[order_b].detach())


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("gradients", [False, True])
def test_features_equal_the_librarys(pair, gradients):
    states = random_batch(7)
    taken = states.with_one_candidate(np.zeros(len(states), np.int64))
    with torch.set_grad_enabled(gradients):
        close(*(prompt_features(m, "competence", states).detach() for m in pair))
        close(*(candidate_features(m, "critic_target", taken).detach() for m in pair))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("what", ["scores", "prompts", "taken"])
def test_gradients_equal_the_librarys(pair, what):
    gradients = []
    for backbone in pair:
        states = random_batch(11)
        if what == "scores":
            scores = score_candidates(backbone, "policy", states, "log_prob_sum")
            loss = tiny.weighted_sum(scores)
        else:
            taken = states.with_one_candidate(np.zeros(len(states), np.int64))
            read = prompt_features if what == "prompts" else candidate_features
            features = read(backbone, "policy", taken)
            weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
            loss = (features * weights).sum()
        for parameter in backbone.adapter("policy").values():
            parameter.grad = None
        loss.backward()
        gradients.append(
            {k: p.grad.clone() for k, p in backbone.adapter("policy").items() if p.grad is not None}
        )
    own, library = gradients
    assert own.keys() == {k for k, g in library.items() if k in own}
    for key, gradient in library.items():
        largest = gradient.abs().max()
        gap = (own[key] - gradient).abs().max() if key in own else largest
        assert gap <= 1e-4 * max(float(largest), 1e-3), key


def test_prompts_of_equal_length_are_read_by_one_query_each(pair):
    """The short cut for one query per state, which random batches seldom take."""
    rng = np.random.default_rng(0)
    states = [PackedState(rng.integers(0, 9, 7), np.zeros(7, np.int8)) for _ in range(6)]
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            close(
                *(prompt_features(m, "policy", PackedBatch(*stack(states))).detach() for m in pair)
            )


def test_adapters_change_what_is_read(pair):
    own, _ = pair
    states = random_batch(2)
    with torch.no_grad():
        policies = [score_candidates(own, name, states).log_policy[0] for name in ADAPTERS]
        for policy, other in itertools.combinations(policies, 2):
            assert (policy - other)[policy > -torch.inf].abs().max() > 1e-4
        own.blend_adapter("policy", "competence_delayed", 1.0)
        moved = score_candidates(own, "competence_delayed", states).log_policy[0]
    close(moved, policies[0])
