"""Timed models: those with a name or a folder, and random ones with the shape of others."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging as transformers_logging

from magellan.pretraining.tokenizer import SPECIAL, word_tokenizer
from magellan.worlds.little_zoo.vocabulary import OBJECTS

SHAPES = {
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2},
    "flan-t5-base-shape": {
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_heads": 12,
        "num_layers": 12,
        "vocab_size": 32_128,
    },
    "smollm2-135m-shape": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49_152,
    },
}
"""Sizes of random models: two T5 of 206,080 (the released code's timings) and 247.6 million
parameters, a Llama of 134.5 million."""
SAMPLE = """Goal: Grow baby seed
You see: nothing,
You are standing on: nothing
Inventory (0/2): empty
Inventory (1/2):
Action: Go to Grasp Release all"""
"""Every word and punctuation mark of Little-Zoo but the names of objects."""


@contextmanager
def model_folder(model: str) -> Iterator[str]:
    """Value of `backbone.model` for a name, a folder or one of `SHAPES`, which are written to a
    temporary folder."""
    if model not in SHAPES:
        yield model
        return
    with tempfile.TemporaryDirectory() as folder, _silence_transformers():
        write = write_t5 if "d_model" in SHAPES[model] else write_llama
        write(Path(folder), SHAPES[model])
        yield folder


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silence the warning of `transformers` about untied embeddings, which are intended."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def write_t5(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write a random T5 and a word-level tokenizer of 66 words.

    Args:
        folder: for the files.
        sizes: of its layers, and `vocab_size`, if not the number of words of the tokenizer.
    """
    tokenizer = tokenizer_of_little_zoo()
    config = T5Config(
        **{"vocab_size": len(tokenizer), **sizes},
        num_decoder_layers=sizes["num_layers"],
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,  # `transformers` then does not scale the decoder's output
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = T5ForConditionalGeneration(config)
        # transformers 5 ties the embeddings of a new T5; untied it has 206,080 parameters.
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_llama(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write a random Llama of these sizes, and the same tokenizer."""
    tokenizer = tokenizer_of_little_zoo()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(**sizes, tie_word_embeddings=True, pad_token_id=0, eos_token_id=2)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tokenizer_of_little_zoo() -> PreTrainedTokenizerFast:
    """Tokenizer with one token per word and punctuation mark of Little-Zoo."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]
    )
    words = dict.fromkeys(word for word, _ in split.pre_tokenize_str(SAMPLE))
    return word_tokenizer([*SPECIAL, *words, *OBJECTS], split)
