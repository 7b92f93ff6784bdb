"""Load a frozen language model and its tokenizer; refuse those that cannot be used."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from magellan.core.codec import number_of_ids
from magellan.core.errors import InputError, is_out_of_memory, shown
from magellan.core.registry import is_built_in
from magellan.model import tokenizers, transformers4
from magellan.model.devices import CPU
from magellan.model.files import TOKENIZER, check_backbone, number_of_weights
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

# A model larger than this factor times its weights plus this margin is not built.
SIZE_FACTOR, SIZE_MARGIN = 2, 10**6
# Stored by older versions of `transformers`, which computed them from config.json.
OLD_BUFFERS = re.compile(
    r"(^|\.)(rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias|causal_mask|position_ids|version)$"
)
FOUR_BITS = "bitsandbytes"
FORMAT = "dtype" if transformers4.NEW else "torch_dtype"
"""Name in `transformers` of the number format of the weights."""

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
        world: whose texts it reads; None: the default one.
        device: where it will run, which decides how attention is computed.
        four_bits: format of products with linear layers, which are then loaded onto the device in
            4 bits; None: no quantization.

    Raises:
        InputError: missing, or neither a causal nor an encoder-decoder model of `transformers`;
            weights that are incomplete, not finite, or too few for the tokenizer; a tokenizer that
            does not distinguish texts of the world.
    """
    folder = check_backbone(name)
    with (
        reported(name, "cannot be loaded"),
        _silence_transformers(),
        transformers4.readable(folder) as readable,
    ):
        model, tokenizer = _load(name, readable, device, four_bits)
    return checked_model(name, model, tokenizer, world)


@contextmanager
def reported(name: str, problem: str) -> Iterator[None]:
    """Turn an error of a library into that of `unusable`: the problem, and what the library says.

    Other than that: InputError, and a lack of memory.
    """
    try:
        yield
    except Exception as error:  # the type is the library's choice
        if isinstance(error, InputError) or is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise unusable(name, f"{problem} ({reason[:200]})") from error


def _load(name: str, folder: Path, device: torch.device, four_bits: torch.dtype | None) -> Loaded:
    """Model and tokenizer; every tensor of the file is the parameter of its name."""
    config = configuration(folder, device)
    family = _family(name, config)
    with torch.device("meta"):  # shapes without memory
        shape = family.from_config(config)
    _check_size(name, folder, shape)
    model, loading = family.from_pretrained(
        folder,
        config=config,
        **{FORMAT: torch.float32},
        attn_implementation=attention_on(device),
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # `_check_keys` reports them in one line
        output_loading_info=True,
        **({} if four_bits is None else _quantization_options(device, four_bits)),
        **_LOCAL,
    )
    _check_keys(name, loading)
    _check_tied(name, shape, model)
    return model, _tokenizer(name, folder)


def configuration(folder: Path, device: torch.device = CPU) -> PretrainedConfig:
    """Read config.json, except the implementation of attention.

    An untrusted file could name a repository of kernels there, which `transformers` would download
    and run where the package `kernels` is installed.
    """
    config = AutoConfig.from_pretrained(folder, **_LOCAL)
    config._attn_implementation = attention_on(device)  # for nested configurations, too
    return config


def _tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of tokenizer.json, else of the class that the folder or its family names.

    A class of `transformers` may replace the normalizer or the pre-tokenizer of the file by its
    own, and so give other ids.
    """
    path = folder / TOKENIZER
    if not path.is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
        difference = tokenizers.check_class(tokenizer, folder)
        if difference is not None:
            kind = type(tokenizer).__name__
            raise unusable(name, f"has no {TOKENIZER}, and {kind} misreads its files: {difference}")
        return tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
    # As the file has it: the line above may change it, too, as it does with regular expressions of
    # Mistral and, in version 4, with `add_prefix_space`.
    tokenizer._tokenizer = Tokenizer.from_file(str(path))
    return tokenizer


def _family(name: str, config: PretrainedConfig) -> Any:
    """Class that loads the model; an encoder alone, such as BERT, is refused.

    `transformers` would give a masked language model a head for the next token, but its attention
    is bidirectional unless its config.json has `is_decoder`. The encoder of an encoder-decoder has
    the model type of the latter.
    """
    kind, classes = config.model_type, config.architectures or [type(config).__name__]
    encoder_only = str(classes[0]).endswith("EncoderModel")
    masked = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if config.is_encoder_decoder and kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        family, fits = AutoModelForSeq2SeqLM, not encoder_only
    else:
        family, fits = AutoModelForCausalLM, kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        fits = fits and not (encoder_only or masked or config.is_encoder_decoder)
    if not fits and hasattr(config, "text_config"):
        raise unusable(name, f"reads more than texts ({classes[0]}); save its language model alone")
    if not fits:
        raise unusable(name, f"is neither causal nor encoder-decoder ({classes[0]})")
    return family


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model without the model."""
    folder = check_backbone(name)
    with reported(name, "cannot be loaded"), transformers4.readable(folder) as readable:
        return _tokenizer(name, readable)


def checked_model(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    world: World | None = None,
) -> Loaded:
    """Check a model's weights and its tokenizer; returns both, the model frozen.

    Raises:
        InputError: as in `load_model`, except for incomplete weights.
    """
    _check_loaded(name, model, tokenizer)
    _check_tokenizer(name, model, tokenizer, world or WORLDS[DEFAULT_WORLD])
    model.requires_grad_(False)
    return model.eval(), tokenizer


def attention_on(device: torch.device) -> str | None:
    """Implementation of attention; None: PyTorch's fused kernels where the family supports them."""
    # On a CPU plain products are the fastest for sequences of some 40 tokens.
    return "eager" if device.type == "cpu" else None


def check_four_bits(quantization: str) -> None:
    """Raise InputError if weights in 4 bits need a library that is not installed."""
    if quantization != "none" and importlib.util.find_spec(FOUR_BITS) is None:
        raise InputError(
            f"backbone.quantization: {quantization!r} needs the package {FOUR_BITS}, which is not "
            f"installed (pip install {FOUR_BITS}); allowed without it: none"
        )


def _quantization_options(device: torch.device, products: torch.dtype) -> dict[str, Any]:
    """The released code's 4-bit format: NormalFloat, without double quantization."""
    settings = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=products
    )
    return {"quantization_config": settings, "device_map": {"": device}}


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silence the progress bars and the report on keys that do not fit."""
    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _check_size(name: str, folder: Path, shape: PreTrainedModel) -> None:
    """Refuse a model far larger than its weights, which would be filled with random numbers."""
    needed = sum(weight.numel() for weight in shape.parameters())
    stored = number_of_weights(folder)
    if needed > SIZE_FACTOR * stored + SIZE_MARGIN:
        raise unusable(
            name, f"has weights of {stored:,} numbers, its config.json asks for {needed:,}"
        )


def _check_tokenizer(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, world: World
) -> None:
    """Check that the tokenizer distinguishes the world's texts and the model reads the longest."""
    with reported(name, "cannot read the world's texts"):
        problem = tokenizers.problem(tokenizer, world)
        if problem is not None:
            raise unusable(name, problem + _remedy(world))
        ids = tokenizers.longest(tokenizer, world)
        end = "answer" if world.answer_tokens else "action"
        _check_length(name, model, len(ids) + world.answer_tokens, f"a prompt with an {end}")
        if ids and not _gives_finite_logits(model, ids):
            raise unusable(name, "gives NaN or infinity for a prompt")


def _check_length(name: str, model: PreTrainedModel, length: int, what: str) -> None:
    text = model.config.get_text_config(decoder=True)
    places = getattr(text, "max_position_embeddings", None)
    if isinstance(places, int) and places < length:
        raise unusable(name, f"reads {places} tokens at most, {what} has {length}")


def _remedy(world: World) -> str:
    """The world of the texts, and the command that makes a model for them; empty for Little-Zoo."""
    if world.name == DEFAULT_WORLD or world.name not in WORLDS:
        return ""
    module = "" if is_built_in(world) else f" --module {shlex.quote(world.source)}"
    return (
        f", in texts of world {world.name!r}; `python -m magellan backbone --world {world.name}"
        f"{module} --output FOLDER` makes a small model for them"
    )


@torch.no_grad()
def _gives_finite_logits(model: PreTrainedModel, ids: list[int]) -> bool:
    tokens = torch.tensor([ids], device=model.device)
    decoder = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    return bool(torch.isfinite(model.eval()(input_ids=tokens, **decoder).logits).all())


def _check_keys(name: str, loading: Mapping[str, Any]) -> None:
    """Refuse missing weights, which `transformers` fills with random numbers, and unused ones."""
    for key, stored, expected in sorted(loading["mismatched_keys"]):
        raise unusable(
            name,
            f"has weights of shape {tuple(stored)} for {key}, its config.json {tuple(expected)}",
        )
    for key in sorted(loading["missing_keys"]):
        raise unusable(name, f"has no weights for {key}")
    unused = sorted(key for key in loading["unexpected_keys"] if not OLD_BUFFERS.search(key))
    if unused:
        more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
        raise unusable(
            name, f"has weights that its config.json has no use for: {', '.join(unused[:3])}{more}"
        )


def _check_tied(name: str, shape: PreTrainedModel, model: PreTrainedModel) -> None:
    """Refuse stored weights that differ though they are to be one, such as embeddings and head.

    `transformers` 5 keeps both then. Encoder-decoders are let pass: configurations of T5s say that
    the weights are one whatever config.json says, and flan-T5s have two.

    shape: the model as its config.json describes it, without weights.
    """
    if shape.config.is_encoder_decoder:
        return
    first: dict[int, str] = {}
    weights = dict(model.named_parameters(remove_duplicate=False))
    for key, described in shape.named_parameters(remove_duplicate=False):
        one = first.setdefault(id(described), key)
        if weights[one] is not weights[key]:
            raise unusable(name, f"has different weights for {one} and {key}, its config.json one")


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
    ids = number_of_ids(tokenizer)
    if ids > rows:
        raise unusable(name, f"has a vocabulary of {rows}, its tokenizer one of {ids}")


def unusable(name: str, problem: str) -> InputError:
    """The error for a model that cannot be used."""
    return InputError(
        f"backbone.model: {shown(name)} {problem}; allowed: a language model with weights and "
        "tokenizer in Hugging Face format"
    )


@torch.no_grad()
def width_of(name: str, model: PreTrainedModel) -> int:
    """Width of the last hidden states; read from a token, as config.json names it in many ways."""
    inputs = {"input_ids": torch.zeros((1, 1), dtype=torch.long, device=model.device)}
    with reported(name, "cannot be read"):
        if model.config.is_encoder_decoder:
            encoded = model.get_encoder()(**inputs).last_hidden_state
            inputs = {**inputs, "encoder_hidden_states": encoded}
        return int(model.get_decoder()(**inputs).last_hidden_state.shape[-1])


class ChatModel:
    """A causal model with a chat template, on the CPU; its answers are greedy.

    As for `load_model`, token ids are those of tokenizer.json; template and end are the tokenizer
    class's.

    Raises:
        InputError: missing, not a language model, or without a chat template.
    """

    def __init__(self, name: str) -> None:
        folder = check_backbone(name)
        with reported(name, "cannot be loaded"), _silence_transformers():
            model, self._tokenizer = _load(name, folder, CPU, None)
            self._named = AutoTokenizer.from_pretrained(folder, **_LOCAL)
        if self._named.chat_template is None:
            raise unusable(name, "has no chat template")
        self._name, self._model = name, model.eval()
        eos = self._named.eos_token
        end = None if eos is None else self._tokenizer.convert_tokens_to_ids(eos)
        ends = model.generation_config.eos_token_id
        # Of the file's settings only these: others, such as a penalty, would not be greedy.
        model.generation_config = GenerationConfig(
            eos_token_id=end if ends is None else ends, pad_token_id=end
        )

    @torch.no_grad()
    def answer(self, messages: Sequence[Mapping[str, str]], most: int) -> tuple[str, list[int]]:
        """Return an answer of `most` tokens or fewer; number of tokens read, and written.

        Raises:
            InputError: the template refuses a message or leaves it out, or it is too long.
        """
        with reported(self._name, "cannot answer"), _silence_transformers():
            text = self._named.apply_chat_template(
                [*messages], add_generation_prompt=True, tokenize=False
            )
            for content in (message["content"].strip() for message in messages):
                if content not in text:
                    raise unusable(self._name, f"has a chat template without {shown(content)}")
            inputs = self._tokenizer(text, add_special_tokens=False, return_tensors="pt")
            read = inputs["input_ids"].shape[1]
            if not read:
                raise unusable(self._name, f"has no token for {shown(text)}")
            _check_length(self._name, self._model, read + most, "a question with its answer")
            tokens = self._model.generate(**inputs, do_sample=False, max_new_tokens=most)[0]
            text = self._tokenizer.decode(tokens[read:], skip_special_tokens=True)
        return text, [read, len(tokens) - read]
