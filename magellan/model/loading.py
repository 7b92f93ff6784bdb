"""Loads a frozen language model and its tokenizer, and refuses what cannot be used."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from magellan.core.errors import InputError, is_out_of_memory, shown
from magellan.core.registry import is_built_in
from magellan.model import tokenizers, transformers4
from magellan.model.devices import CPU
from magellan.model.files import check_backbone, number_of_weights
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

# How much larger than its weights a model may be before it is not even built.
SIZE_FACTOR, SIZE_MARGIN = 2, 10**6
FOUR_BITS = "bitsandbytes"
FORMAT = "dtype" if transformers4.NEW else "torch_dtype"
"""What `transformers` calls the number format of the weights."""

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]
"""A frozen language model and its tokenizer."""


def load_model(
    name: str,
    world: World | None = None,
    device: torch.device = CPU,
    four_bits: torch.dtype | None = None,
) -> Loaded:
    """Load a frozen language model, decoder-only or encoder-decoder, and its tokenizer.

    Nothing is downloaded, unpickled, or run from the folder. Weights are float32 on the CPU.

    Args:
        name: value of `backbone.model`.
        world: whose texts it is to read; None: the default one.
        device: where it will compute, which decides how attention is computed.
        four_bits: format of products with linear layers that are kept in 4 bits, on the device
            already; None: none are.

    Raises:
        InputError: missing, or not a language model that `transformers` knows, causal or
            encoder-decoder; weights that do not
            fill the model, are not finite, or have no row for a token of the tokenizer; a tokenizer
            that cannot tell texts of the world apart.
    """
    folder = check_backbone(name)
    try:
        with _without_reports(), transformers4.readable(folder) as readable:
            model, loading, tokenizer = _load(name, readable, device, four_bits)
    except Exception as error:  # what a broken folder raises is the library's choice
        if isinstance(error, InputError) or is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise unusable(name, f"cannot be loaded ({reason[:200]})") from error
    _check_keys(name, loading)
    return checked_model(name, model, tokenizer, world)


def _load(
    name: str, folder: Path, device: torch.device, four_bits: torch.dtype | None
) -> tuple[PreTrainedModel, Mapping[str, Any], PreTrainedTokenizerBase]:
    """Model, what `transformers` says of its loading, and tokenizer."""
    config = configuration(folder, device)
    family = _family(name, config)
    _check_size(name, folder, config, family)
    model, loading = family.from_pretrained(
        folder,
        config=config,
        **{FORMAT: torch.float32},
        attn_implementation=attention_on(device),
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # told below, in one line
        output_loading_info=True,
        **({} if four_bits is None else _in_four_bits(device, four_bits)),
        **_LOCAL,
    )
    return model, loading, _tokenizer(folder)


def configuration(folder: Path, device: torch.device = CPU) -> PretrainedConfig:
    """What config.json says, but for how attention is computed.

    There a stranger's file could name a repository of kernels, which `transformers` would get and
    run where the package `kernels` is installed.
    """
    config = AutoConfig.from_pretrained(folder, **_LOCAL)
    config._attn_implementation = attention_on(device)  # for what is inside of it, too
    return config


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, **_LOCAL)


def _family(name: str, config: PretrainedConfig) -> Any:
    """What loads the model, by its kind; an encoder alone, such as BERT, cannot be used.

    `transformers` would give a model of masked words a head for the next one, but it still sees the
    words after it, unless its config.json has `is_decoder`. An encoder that was cut out of an
    encoder-decoder has that one's kind.
    """
    kind, classes = config.model_type, config.architectures or [type(config).__name__]
    cut_out = str(classes[0]).endswith("EncoderModel")
    masked = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if config.is_encoder_decoder and kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        family, fits = AutoModelForSeq2SeqLM, not cut_out
    else:
        family, fits = AutoModelForCausalLM, kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        fits = fits and not (cut_out or masked or config.is_encoder_decoder)
    if not fits:
        raise unusable(name, f"is neither causal nor encoder-decoder ({classes[0]})")
    return family


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Tokenizer of a model, where the model itself is somewhere else."""
    with transformers4.readable(check_backbone(name)) as folder:
        return _tokenizer(folder)


def checked_model(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    world: World | None = None,
) -> Loaded:
    """The same model, frozen, after a look at its weights and at what its tokenizer makes of texts.

    Raises:
        InputError: as `load_model` says, but for weights that do not fill the model.
    """
    _check_loaded(name, model, tokenizer)
    _check_tokenizer(name, model, tokenizer, world or WORLDS[DEFAULT_WORLD])
    model.requires_grad_(False)
    return model.eval(), tokenizer


def attention_on(device: torch.device) -> str | None:
    """How attention is computed; None: PyTorch's fused kernels where the family can use them."""
    # For sequences of some 40 tokens the plain products are the fastest choice on a CPU.
    return "eager" if device.type == "cpu" else None


def check_four_bits(quantization: str) -> None:
    """Look for the library that keeps weights in 4 bits, without loading it.

    Raises:
        InputError: it is asked for and absent.
    """
    if quantization != "none" and importlib.util.find_spec(FOUR_BITS) is None:
        raise InputError(
            f"backbone.quantization: {quantization!r} needs the package {FOUR_BITS}, which is not "
            f"installed (pip install {FOUR_BITS}); allowed without it: none"
        )


def _in_four_bits(device: torch.device, products: torch.dtype) -> dict[str, Any]:
    """The released code's 4-bit format: NormalFloat, scales of blocks not quantised again."""
    settings = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=products
    )
    return {"quantization_config": settings, "device_map": {"": device}}


@contextmanager
def _without_reports() -> Iterator[None]:
    """Neither progress bars nor the table of keys that do not fit."""
    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _check_size(name: str, folder: Path, config: PretrainedConfig, family: Any) -> None:
    """A model far larger than its weights would be filled with random numbers before it is told."""
    with torch.device("meta"):  # shapes without memory
        wanted = sum(weight.numel() for weight in family.from_config(config).parameters())
    stored = number_of_weights(folder)
    if wanted > SIZE_FACTOR * stored + SIZE_MARGIN:
        raise unusable(
            name, f"has weights of {stored:,} numbers, its config.json asks for {wanted:,}"
        )


def _check_tokenizer(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, world: World
) -> None:
    """The world's texts can be told apart, and the model reads the longest of them."""
    try:
        problem = tokenizers.problem(tokenizer, world)
        if problem is not None:
            problem += _remedy(world)
        ids = tokenizers.longest(tokenizer, world)
        places = getattr(model.config, "max_position_embeddings", None)
        if problem is None and isinstance(places, int) and places < len(ids):
            problem = f"reads {places} tokens at most, a prompt with an action has {len(ids)}"
        if problem is None and ids and not _reads(model, ids):
            problem = "gives NaN or infinity for a prompt"
    except Exception as error:  # what a broken tokenizer raises is the library's choice
        if is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        problem = f"cannot read the world's texts ({reason[:200]})"
    if problem:
        raise unusable(name, problem)


def _remedy(world: World) -> str:
    """Where a text is from, and how to make a model that reads it; Little-Zoo has its own."""
    if world.name == DEFAULT_WORLD or world.name not in WORLDS:
        return ""
    module = "" if is_built_in(world) else f" --module {shlex.quote(world.source)}"
    return (
        f", in texts of world {world.name!r}; `python -m magellan backbone --world {world.name}"
        f"{module} --output FOLDER` makes a small model for them"
    )


@torch.no_grad()
def _reads(model: PreTrainedModel, ids: list[int]) -> bool:
    """Whether all logits of a text are finite."""
    tokens = torch.tensor([ids], device=model.device)
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    return bool(torch.isfinite(model.eval()(input_ids=tokens, **more).logits).all())


def _check_keys(name: str, loading: Mapping[str, Any]) -> None:
    """`transformers` fills gaps in the weights with random numbers; here they are errors."""
    for key, stored, wanted in sorted(loading["mismatched_keys"]):
        raise unusable(
            name, f"has weights of shape {tuple(stored)} for {key}, its config.json {tuple(wanted)}"
        )
    for key in sorted(loading["missing_keys"]):
        raise unusable(name, f"has no weights for {key}")


def _check_loaded(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    for key, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise unusable(name, f"has NaN or infinity in its weights for {key}")
    start = getattr(model.config, "decoder_start_token_id", None)
    if model.config.is_encoder_decoder and not isinstance(start, int):
        raise unusable(
            name, "has no decoder_start_token_id in config.json, which its decoder begins with"
        )
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise unusable(name, f"has a vocabulary of {rows}, its tokenizer one of {len(tokenizer)}")


def unusable(name: str, problem: str) -> InputError:
    """What to raise for a model that cannot be used."""
    return InputError(
        f"backbone.model: {shown(name)} {problem}; allowed: a language model with weights and "
        "tokenizer in Hugging Face format"
    )


def width_of(name: str, model: PreTrainedModel) -> int:
    width = getattr(model.config, "hidden_size", None)
    if not isinstance(width, int):
        raise unusable(name, "has no hidden_size in config.json")
    return width
