"""One packed pass gives what separate passes give, batched or not, merged or not."""

import itertools

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from magellan.config import BackboneConfig, check_backbone
from magellan.core.codec import Codec, stack
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.packing import batch
from magellan.model.scoring import prompt_features, score_candidates
from tests.agent.states import CANDIDATES, PROMPTS, features_of


def make_backbone(**settings) -> Backbone:
    """A backbone whose adapters all differ and matter (a fresh adapter changes nothing: B = 0)."""
    backbone = Backbone(BackboneConfig(lora_targets="all_linear", lora_rank=4, **settings), seed=1)
    generator = torch.Generator().manual_seed(2)
    for name, suffix in itertools.product(ADAPTERS, ("lora_A", "lora_B")):
        for key, parameter in backbone.adapter(name).items():
            if key.endswith(suffix):
                with torch.no_grad():
                    parameter.normal_(std=0.1, generator=generator)
        backbone.adapter_changed(name)
    return backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return make_backbone()


def pack(backbone: Backbone, rows=(0, 1)):
    codec = Codec(backbone.tokenizer)
    return codec.pack([PROMPTS[i] for i in rows], [CANDIDATES[i] for i in rows])


def separate_pass(backbone: Backbone, adapter: str, prompt: str, candidate: str):
    """Logits and last hidden state of an ordinary pass over prompt + candidate."""
    model = AutoModelForCausalLM.from_pretrained(check_backbone("zoo-mini"), dtype=torch.float32)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for key, b in backbone.adapter(adapter).items():
            if key.endswith("lora_B"):
                a = backbone.adapter(adapter)[key.replace("lora_B", "lora_A")]
                scale = backbone.config.lora_alpha / backbone.config.lora_rank
                weights[key.replace("lora_B", "weight")] += scale * b @ a
        head = backbone.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        tail = backbone.tokenizer(candidate, add_special_tokens=False)["input_ids"]
        output = model(torch.tensor([head + tail]), output_hidden_states=True)
    before = output.logits[0, len(head) - 1 : -1]
    return before, torch.tensor(tail), output.hidden_states[-1][0, -1]


@pytest.mark.parametrize("adapter", ["policy", "critic_target"])
@pytest.mark.parametrize("score", ["logit_sum", "log_prob_sum"])
def test_packed_candidates_equal_separate_passes(backbone, adapter, score):
    with torch.no_grad():
        packed = score_candidates(backbone, adapter, batch(*stack(pack(backbone))), score)
    for row, (prompt, candidates) in enumerate(zip(PROMPTS, CANDIDATES, strict=True)):
        totals, hidden = [], []
        for candidate in candidates:
            logits, tail, last = separate_pass(backbone, adapter, prompt, candidate)
            scores = logits if score == "logit_sum" else torch.log_softmax(logits, dim=-1)
            totals.append(scores.gather(1, tail[:, None]).sum())
            hidden.append(last)
        expected = torch.log_softmax(torch.stack(totals), dim=0)
        torch.testing.assert_close(
            packed.log_policy[row, : len(candidates)], expected, rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(features_of(packed, row), torch.stack(hidden), rtol=0, atol=1e-5)
    assert packed.valid.sum(dim=1).tolist() == [5, 4]
    assert packed.log_policy[1, 4] == float("-inf")


def test_batched_scores_equal_single_ones(backbone):
    with torch.no_grad():
        together = score_candidates(backbone, "policy", batch(*stack(pack(backbone))))
        for row in range(len(PROMPTS)):
            alone = score_candidates(backbone, "policy", batch(*stack(pack(backbone, [row]))))
            n = len(CANDIDATES[row])
            torch.testing.assert_close(
                together.log_policy[row, :n], alone.log_policy[0], rtol=0, atol=1e-5
            )
            torch.testing.assert_close(
                features_of(together, row), features_of(alone, 0), rtol=0, atol=1e-5
            )


def test_equal_candidates_have_equal_scores(backbone):
    with torch.no_grad():
        scores = score_candidates(backbone, "policy", batch(*stack(pack(backbone))))
    torch.testing.assert_close(scores.log_policy[1, 2], scores.log_policy[1, 3])


def test_merged_equals_per_token():
    per_token, merged = make_backbone(lora_mode="per_token"), make_backbone()
    results = []
    for backbone in (per_token, merged):
        scores = score_candidates(backbone, "policy", batch(*stack(pack(backbone))))
        (scores.features.sum() - scores.log_policy[0, 0]).backward()
        gradients = {k: p.grad for k, p in backbone.adapter("policy").items()}
        results.append((scores, gradients))
    torch.testing.assert_close(results[0][0].log_policy, results[1][0].log_policy)
    for key, gradient in results[0][1].items():
        gap = (gradient - results[1][1][key]).abs().max()
        assert gap <= 1e-4 * gradient.abs().max(), key


def test_adapters_are_separate(backbone):
    states = batch(*stack(pack(backbone)))
    with torch.no_grad():
        seen = [score_candidates(backbone, name, states).log_policy[0] for name in ADAPTERS]
    for one, other in itertools.combinations(seen, 2):
        assert (one - other).abs().max() > 1e-3


def test_merged_weights_follow_the_adapter(backbone):
    states = batch(*stack(pack(backbone)))
    with torch.no_grad():
        before = score_candidates(backbone, "competence_delayed", states).log_policy
        backbone.blend_adapter("policy", "competence_delayed", 0.5)
        after = score_candidates(backbone, "competence_delayed", states).log_policy
    assert (before[0] - after[0]).abs().max() > 1e-3


def test_prompt_feature_is_the_last_token_of_an_unpacked_pass(backbone):
    codec = Codec(backbone.tokenizer)
    alone = codec.pack(PROMPTS, [()] * len(PROMPTS))
    with torch.no_grad():
        features = prompt_features(backbone, "competence", batch(*stack(alone)))
        packed = prompt_features(backbone, "competence", batch(*stack(pack(backbone))))
    torch.testing.assert_close(features, packed, rtol=0, atol=1e-5)
    expected = separate_pass(
        backbone, "competence", PROMPTS[0].removesuffix("\nAction: "), "\nAction: "
    )
    torch.testing.assert_close(features[0], expected[2], rtol=0, atol=1e-5)


def test_positions_restart_after_the_prompt_in_every_branch(backbone):
    states = batch(*stack(pack(backbone, [1])))
    prompt = int((states.segments == 0).sum())
    branch_lengths = [1, 2, 3, 3]  # Grasp | Go to, water | Release, carrot, seed | the same
    expected = list(range(prompt)) + [prompt + i for n in branch_lengths for i in range(n)]
    assert states.positions[0].tolist() == expected


def test_codec_remembers_without_changing(backbone):
    codec = Codec(backbone.tokenizer, remember=2)
    first = [np.array(ids) for ids in codec.encode(PROMPTS)]
    codec.encode(["Grasp", "Go to water"])
    for ids, again in zip(first, codec.encode(PROMPTS), strict=True):
        assert ids.tolist() == again.tolist()
        assert backbone.tokenizer.decode(ids) in PROMPTS
