"""Tiny random models, saved as Hugging Face folders, that speak zoo-mini's tokens."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from magellan.config import check_backbone


def t5(words: int, **settings: Any) -> PreTrainedModel:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 2}
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "dropout_rate": 0.0}
    return T5ForConditionalGeneration(T5Config(vocab_size=words, **sizes | special | settings))


def bart(words: int, **settings: Any) -> PreTrainedModel:
    """An encoder-decoder whose positions are learnt, one by one."""
    sizes = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
    each = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in sizes.items()}
    return BartForConditionalGeneration(BartConfig(vocab_size=words, d_model=32, **each | settings))


def gpt2(words: int, **settings: Any) -> PreTrainedModel:
    """Its weights are transposed."""
    sizes = {"n_positions": 256, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=words, **sizes | settings))


def llama(words: int, **settings: Any) -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=words, **sizes | heads | settings))


FAMILIES = {"t5": t5, "bart": bart, "gpt2": gpt2, "llama": llama}


def write(path, family: str, seed: int = 0, **settings: Any) -> None:
    """A random model of a family; `settings` are those of its configuration."""
    tokenizer = AutoTokenizer.from_pretrained(check_backbone("zoo-mini"))
    torch.manual_seed(seed)
    FAMILIES[family](len(tokenizer), **settings).save_pretrained(path)
    tokenizer.save_pretrained(path)
