"""Families of models that are scored rightly in one pass, and others; folders for older readers."""

import json
import re

import pytest
import torch
from transformers import BertModel, T5EncoderModel

from magellan.backends import make_backend
from magellan.model import loading
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.model.transformers4 import readable
from tests.agent.tiny import like_gpt2, model, save
from tests.runs import refusal

GOOD = ("gpt2", "llama", "qwen2", "t5", "bart", "mt5", "longt5", "mistral", "gpt_neox", "opt")
RANDOM_AND_LARGE = ("t5", "mt5", "longt5")  # their logits as they are
BAD = {
    "t5": {"decoder_start_token_id": None},  # its decoder reads nothing before the first token
    "mamba": {},
    "bloom": {},
    "gptj": {},  # its output layer has a bias
    "gemma2": {"final_logit_softcapping": 0.1},  # it bends large logits
    "bert": {},  # its output layer does more than multiply
}


def backend_of(family, folder, kind=None, settings=None, **backend):
    torch.manual_seed(0)
    tokenizer = like_gpt2()
    scored = model(family, len(tokenizer), **(settings or {}))
    if family == "gptj":
        torch.nn.init.normal_(scored.lm_head.bias)
    for parameter in scored.parameters():
        parameter.data *= 3 if parameter.dim() > 1 and family not in RANDOM_AND_LARGE else 1
    save(folder, scored if kind is None else kind(scored.config), tokenizer)
    config = BackboneConfig(
        model=str(folder), lora_rank=2, lora_targets="all_linear", lora_mode="per_token"
    )
    return make_backend(config, BackendConfig(**backend))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", GOOD)
def test_families_that_are_scored_rightly_are_taken(family, dtype, tmp_path):
    assert backend_of(family, tmp_path, dtype=dtype).passes == "transformers"


@pytest.mark.parametrize("family", BAD)
def test_families_that_would_be_scored_wrongly_are_refused(family, tmp_path):
    message = refusal(backend_of, family, tmp_path, settings=BAD[family])
    assert re.match(r"backbone.model: .*; allowed: ", message)


ENCODERS = {
    "BertModel": ("bert", BertModel, {"is_decoder": False}),
    "BertLMHeadModel": ("bert", None, {"is_decoder": False}),
    "T5EncoderModel": ("t5", T5EncoderModel, {}),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_alone_is_refused_before_it_is_loaded(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_check_size", None)  # the next step would fail
    family, *more = ENCODERS[kind]
    words = f"'{tmp_path}' is neither causal nor encoder-decoder ({kind}); allowed: "
    assert words in refusal(backend_of, family, tmp_path, *more)


LINEAR = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("rotary", "older"),
    [
        (LINEAR, {"rope_theta": 5e5, "rope_scaling": LINEAR}),
        ({"rope_type": "default"}, {"rope_theta": 10_000.0}),  # the usual ones are not scaled
    ],
)
def test_with_the_older_one_names_are_those_that_it_knows(rotary, older, tmp_path):
    values = {"rope_parameters": rotary, "dtype": "float32", "vocab_size": 7}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with readable(tmp_path, new=False) as folder:
        config = json.loads((folder / "config.json").read_text())
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert config == values | older | {"torch_dtype": "float32"}
    assert tokenizer == {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert not folder.exists()
