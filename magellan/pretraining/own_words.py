"""A small language model with random weights and a tokenizer for the words of one world.

For first runs and tests of worlds whose words the embedded models do not know. It is not
pretrained: an agent or estimator learns with its adapters and heads alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from magellan.core.errors import InputError, shown
from magellan.core.files import new_folder, write_atomically
from magellan.pretraining import RECORD, check_output, save_model
from magellan.pretraining.small import small_llama
from magellan.pretraining.tokenizer import SPECIAL, word_tokenizer
from magellan.worlds import World

MAKER = "own words"
# Tokens are words with the space before them, and single other characters. Numbers are thus read
# digit by digit, and different numbers have different tokens.
_PATTERN = Regex(r" ?\p{L}+|\s|[^\p{L}\s]")
_SEED = 0
_WIDTH, _LAYERS, _HEADS, _MLP_WIDTH, _PLACES = 64, 2, 4, 128, 2_048


def write(world: World, output: Path) -> dict[str, Any]:
    """Write model and tokenizer for a world's texts to `output`; returns the record in build.json.

    Deterministic: the same world gives the same files.

    Raises:
        InputError: the world names no texts; `output` holds another model or cannot be written.
    """
    check_output(output, "made", MAKER)
    tokenizer = build_tokenizer(world)
    model = build_model(len(tokenizer))
    record = {
        "made": MAKER,
        "world": world.name,
        "tokens": len(tokenizer),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }
    new_folder(output)
    write_atomically(output / RECORD, json.dumps(record, indent=2).encode() + b"\n")
    save_model(output, model, tokenizer)
    return record


def build_tokenizer(world: World) -> PreTrainedTokenizerFast:
    """Lossless tokenizer with a token for each word of the world's texts."""
    split = pre_tokenizers.Split(_PATTERN, behavior="isolated")
    texts = (text for group in world.texts() for text in group.values())
    pieces = (piece for text in texts for piece, _ in split.pre_tokenize_str(text))
    words = dict.fromkeys((*SPECIAL, *pieces))
    if len(words) == len(SPECIAL):
        raise InputError(
            f"--world: {shown(world.name)} is not allowed: it names no texts (its method `texts`); "
            "allowed: a world that does"
        )
    return word_tokenizer(words, split)


def build_model(tokens: int) -> LlamaForCausalLM:
    """A Llama of two layers with tied embeddings.

    Initial weights preserve the norm of their input. With the library's default deviation of 0.02,
    made for pretraining, attention would add almost nothing to the last token, which heads read.
    """
    shape = _WIDTH, _LAYERS, _HEADS, _MLP_WIDTH, _PLACES
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(_SEED)
        return small_llama(tokens, *shape, initializer_range=_WIDTH**-0.5)
