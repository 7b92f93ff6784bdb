"""A small language model that reads the words of one world, with random weights.

For tries and tests of worlds whose words the embedded models do not know. Nothing was learnt by it:
what an agent or an estimator makes of it comes from its adapters and heads alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from magellan.core.errors import InputError, shown
from magellan.core.parsing import read_json_object
from magellan.model.files import WEIGHTS
from magellan.pretraining.tokenizer import SPECIAL, of_words
from magellan.worlds import World

MAKER = "own words"
RECORD = "build.json"
# Every character is in one token: words with the space before them, all else by itself. So numbers
# are read digit by digit, and two of them are never alike.
_PATTERN = Regex(r" ?\p{L}+|\s|[^\p{L}\s]")
_SEED = 0
_WIDTH, _LAYERS, _HEADS, _MLP_WIDTH, _PLACES = 64, 2, 4, 128, 2_048


def write(world: World, output: Path) -> dict[str, Any]:
    """Write model and tokenizer for a world's texts into `output`; gives the record of it.

    The same world gives the same files.

    Raises:
        InputError: the world names no texts; `output` holds another model or cannot be written.
    """
    _check_output(output)
    tokenizer = build_tokenizer(world)
    model = build_model(len(tokenizer))
    record = {
        "made": MAKER,
        "world": world.name,
        "tokens": len(tokenizer),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--output: {output} cannot be written ({error.strerror}); allowed: a folder, new or "
            "of such a model"
        ) from error
    tokenizer.save_pretrained(output)
    model.save_pretrained(output)
    # Others on a cluster read it too: safetensors writes for the owner alone.
    (output / WEIGHTS).chmod((output / "config.json").stat().st_mode)
    return record


def build_tokenizer(world: World) -> PreTrainedTokenizerFast:
    """A tokenizer that has a token for each word of the world's texts, and loses none of them."""
    split = pre_tokenizers.Split(_PATTERN, behavior="isolated")
    texts = (text for group in world.texts() for text in group.values())
    pieces = (piece for text in texts for piece, _ in split.pre_tokenize_str(text))
    words = dict.fromkeys((*SPECIAL, *pieces))
    if len(words) == len(SPECIAL):
        raise InputError(
            f"--world: {shown(world.name)} is not allowed: it names no texts (its method `texts`); "
            "allowed: a world that does"
        )
    return of_words(words, split)


def build_model(tokens: int) -> LlamaForCausalLM:
    """A Llama of two layers with tied embeddings.

    Its matrices keep the size of what they multiply. With the library's own range of 0.02, made for
    pretraining, attention adds next to nothing to the last token, where heads look for the goal.
    """
    config = LlamaConfig(
        vocab_size=tokens,
        hidden_size=_WIDTH,
        intermediate_size=_MLP_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        max_position_embeddings=_PLACES,
        initializer_range=_WIDTH**-0.5,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(_SEED)
        return LlamaForCausalLM(config)


def _check_output(output: Path) -> None:
    """A model of this kind is written anew; any other stays."""
    try:
        ours = read_json_object(output / RECORD).get("made") == MAKER
    except (OSError, InputError):
        ours = False
    if not ours and (output / WEIGHTS).exists():
        raise InputError(
            f"--output: {output} is not allowed: it holds another model; allowed: another folder"
        )
