"""Families of models that one pass for several actions scores rightly, and those it does not."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertLMHeadModel,
    BertModel,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LongT5Config,
    LongT5ForConditionalGeneration,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MT5Config,
    MT5ForConditionalGeneration,
    OPTConfig,
    OPTForCausalLM,
    T5EncoderModel,
)

from magellan.backends import make_backend
from magellan.core.errors import InputError
from magellan.model import loading
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.agent.test_tokenizers import SIZES, gpt2, like_gpt2, llama, qwen2, t5
from tests.agent.tiny import bart

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def longt5(tokens):
    config = LongT5Config(vocab_size=tokens, local_radius=3, **LIKE_T5)
    return LongT5ForConditionalGeneration(config)


def mt5(tokens):
    return MT5ForConditionalGeneration(MT5Config(vocab_size=tokens, **LIKE_T5))


LIKE_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2}
LIKE_T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0}
RANDOM_AND_LARGE = (t5, mt5, longt5)  # their logits as they are


def gptj(tokens):
    """Its output layer has a bias."""
    model = GPTJForCausalLM(
        GPTJConfig(vocab_size=tokens, n_embd=32, n_layer=2, n_head=4, rotary_dim=8)
    )
    torch.nn.init.normal_(model.lm_head.bias)
    return model


def gemma2(tokens):
    """It bends large logits; here to less than 0.1."""
    return Gemma2ForCausalLM(
        Gemma2Config(vocab_size=tokens, head_dim=8, final_logit_softcapping=0.1, **SIZES)
    )


GOOD = {
    "gpt2": gpt2,
    "llama": llama,
    "qwen2": qwen2,
    "t5": t5,
    "bart": bart,
    "mt5": mt5,
    "longt5": longt5,
    "mistral": lambda n: MistralForCausalLM(MistralConfig(vocab_size=n, **SIZES)),
    "gpt-neox": lambda n: GPTNeoXForCausalLM(
        GPTNeoXConfig(vocab_size=n, intermediate_size=48, **SMALL)
    ),
    "opt": lambda n: OPTForCausalLM(
        OPTConfig(vocab_size=n, ffn_dim=48, word_embed_proj_dim=32, **SMALL)
    ),
}
BAD = {
    "mamba": lambda n: MambaForCausalLM(
        MambaConfig(vocab_size=n, hidden_size=32, num_hidden_layers=2)
    ),
    "bloom": lambda n: BloomForCausalLM(
        BloomConfig(vocab_size=n, hidden_size=32, n_layer=2, n_head=4)
    ),
    "bias of the logits": gptj,
    "bent logits": gemma2,
}


def backend_of(make, folder, **settings):
    torch.manual_seed(0)
    tokenizer = like_gpt2()
    model = make(len(tokenizer))
    for parameter in model.parameters():
        parameter.data *= 3 if parameter.dim() > 1 and make not in RANDOM_AND_LARGE else 1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = BackboneConfig(
        model=str(folder), lora_rank=2, lora_targets="all_linear", lora_mode="per_token"
    )
    return make_backend(config, BackendConfig(**settings))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", GOOD)
def test_families_that_are_scored_rightly_are_taken(family, dtype, tmp_path):
    assert backend_of(GOOD[family], tmp_path, dtype=dtype).passes == "transformers"


@pytest.mark.parametrize("family", BAD)
def test_families_that_would_be_scored_wrongly_are_refused(family, tmp_path):
    with pytest.raises(InputError, match=r"^backbone.model: .*; allowed: ") as refused:
        backend_of(BAD[family], tmp_path)
    assert "\n" not in str(refused.value)


def bert(tokens, kind, **more):
    return kind(BertConfig(vocab_size=tokens, intermediate_size=48, **SMALL, **more))


def encoder_of_t5(tokens):
    return T5EncoderModel(t5(tokens).config)


ENCODERS = {
    "BertModel": lambda n: bert(n, BertModel),
    "BertLMHeadModel": lambda n: bert(n, BertLMHeadModel),
    "T5EncoderModel": encoder_of_t5,
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_alone_is_refused_before_it_is_loaded(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_check_size", None)  # the next step would fail
    with pytest.raises(InputError) as refused:
        backend_of(ENCODERS[kind], tmp_path)
    said = f"'{tmp_path}' is neither causal nor encoder-decoder ({kind}); allowed: "
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_decoder_of_such_a_family_comes_as_far_as_its_scores(tmp_path):
    """Its output layer does more than multiply."""
    with pytest.raises(InputError, match="scores actions otherwise together than one by one"):
        backend_of(lambda n: bert(n, BertLMHeadModel, is_decoder=True), tmp_path)
