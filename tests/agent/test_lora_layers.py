"""Adapters on the last layers only: which these are, and that the model reads as it should."""

import pytest
import torch
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from magellan.agent.backbone import ADAPTERS, Backbone
from magellan.agent.codec import Codec, stack
from magellan.agent.scoring import score_candidates
from magellan.config import BackboneConfig, check_backbone
from magellan.errors import InputError
from tests.agent.compilers import needs_compiler
from tests.agent.states import CANDIDATES, PROMPTS

MODELS = {
    "llama": lambda n: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=n,
            num_attention_heads=4,
            num_hidden_layers=3,
            hidden_size=32,
            intermediate_size=48,
        )
    ),
    "gpt2": lambda n: GPT2LMHeadModel(
        GPT2Config(vocab_size=n, n_embd=32, n_layer=3, n_head=4, n_positions=256)
    ),
    "t5": lambda n: T5ForConditionalGeneration(
        T5Config(
            vocab_size=n,
            decoder_start_token_id=0,
            pad_token_id=0,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_heads=4,
            num_layers=3,
            dropout_rate=0.0,
        )
    ),
}
WAYS = [
    ("llama", "merged", "torch"),
    pytest.param(("llama", "merged", "compiled"), marks=needs_compiler),
    ("llama", "per_token", "auto"),
    ("gpt2", "merged", "auto"),
    ("gpt2", "per_token", "auto"),
    ("t5", "merged", "torch"),
    ("t5", "per_token", "auto"),
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    tokenizer = AutoTokenizer.from_pretrained(check_backbone("zoo-mini"))
    found = {}
    for name, make in MODELS.items():
        found[name] = tmp_path_factory.mktemp(name)
        torch.manual_seed(3)
        make(len(tokenizer)).save_pretrained(found[name])
        tokenizer.save_pretrained(found[name])
    return found


def make(folders, way, layers, targets="all_linear") -> Backbone:
    model, mode, passes = way
    return Backbone(
        BackboneConfig(
            model=str(folders[model]),
            lora_rank=2,
            lora_layers=layers,
            lora_targets=targets,
            lora_mode=mode,
            passes=passes,
        )
    )


def is_in_layer(name: str, number: int) -> bool:
    return any(f".{word}.{number}." in name for word in ("layers", "h", "block"))


def is_last(name: str) -> bool:
    return is_in_layer(name, 2)


def gradients(backbone: Backbone) -> dict[str, torch.Tensor]:
    states = backbone.batch(*stack(Codec(backbone.tokenizer).pack(PROMPTS, CANDIDATES)))
    scores = score_candidates(backbone, "policy", states)
    finite = scores.log_policy.masked_fill(~scores.valid, 0.0)
    (finite.square().sum() + scores.features.square().sum()).backward()
    return {name: each.grad for name, each in backbone.adapter("policy").items()}


@every_way
def test_it_is_the_full_model_with_nothing_learnt_below(folders, way):
    """All layers carry adapters on one side, those below the last with B = 0."""
    full, last = make(folders, way, 0), make(folders, way, 1)
    assert set(last.adapter("policy")) == {name for name in full.adapter("policy") if is_last(name)}
    generator = torch.Generator().manual_seed(1)
    for adapter in ADAPTERS:
        values = {
            name: torch.empty(each.shape).normal_(0, 0.1, generator=generator)
            for name, each in full.adapter(adapter).items()
        }
        last.load_adapter(adapter, {name: values[name] for name in last.adapter(adapter)})
        for name in values:
            if name.endswith("lora_B") and not is_last(name):
                values[name].zero_()
        full.load_adapter(adapter, values)
    states = full.batch(*stack(Codec(full.tokenizer).pack(PROMPTS, CANDIDATES)))
    exact = {"rtol": 1e-5, "atol": 1e-5}
    with torch.no_grad():
        for adapter in ADAPTERS:
            ours, theirs = (score_candidates(each, adapter, states) for each in (last, full))
            torch.testing.assert_close(ours.log_policy, theirs.log_policy, **exact)
            torch.testing.assert_close(ours.features, theirs.features, **exact)
    of_full = gradients(full)
    for name, gradient in gradients(last).items():
        largest = float(of_full[name].abs().max())
        assert largest > 0, name
        torch.testing.assert_close(gradient, of_full[name], rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("model", MODELS)
def test_targets_are_chosen_within_the_layers(folders, model):
    backbone = make(folders, (model, "merged", "auto"), 2, "attention_qv")
    found = {name.rsplit(".", 2)[1] for name in backbone.adapter("policy")}
    assert found == {"llama": {"q_proj", "v_proj"}, "t5": {"q", "v"}, "gpt2": {"c_attn"}}[model]
    for number, there in enumerate((False, True, True)):
        assert any(is_in_layer(name, number) for name in backbone.adapter("policy")) == there


def test_more_layers_than_there_are_is_refused(folders):
    with pytest.raises(InputError, match=r"lora_layers: 4 is more than the 3 .*0 \(all\) to 3"):
        make(folders, WAYS[0], 4)
