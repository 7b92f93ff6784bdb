"""Files of a language model, looked at without building it: fast, and without torch.

Only safetensors and JSON are read. Weights in PyTorch's own format are pickles, and refused.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from dataclasses import dataclass
from os.path import isdir, isfile  # false also for names that no file can have
from pathlib import Path
from typing import Any

from magellan.core.errors import InputError, is_out_of_memory, shown
from magellan.core.parsing import read_json_object

BACKBONES = Path(__file__).parents[1] / "backbones"
"""The embedded ones."""
MADE_IN, MADE_IN_DEFAULT = "MAGELLAN_BACKBONES", "results/backbone"
"""Environment variable that names the folder of the made models, and the folder without it."""


@dataclass(frozen=True)
class Made:
    """A model that a rule of the workflow makes once, from files that it gets.

    rule: its name.
    parameters: numbers in all weights, known before there are any.
    """

    rule: str
    parameters: int


MADE = {"smollm2-135m": Made("backbone_smollm2", 134_515_008)}
ALLOWED = (
    f"zoo-reader, zoo-mini, craft-reader, {', '.join(MADE)}, a folder with config.json, weights "
    "(model.safetensors) and tokenizer in Hugging Face format, or the name of a model in the "
    "Hugging Face cache"
)
HUB_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Any one of these groups of files makes a tokenizer.
TOKENIZERS = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
# Files that the numbers of a run depend on, beside the weights.
DIGESTED = (
    "config.json",
    WEIGHTS_INDEX,
    *sorted({name for group in TOKENIZERS for name in group}),
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_CHUNK = 1 << 20
# What a config.json may call its number of layers, each of which would be built before its weights
# are looked at; other sizes that are none are the library's to refuse.
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
MOST_LAYERS = 1_000
# How classes with a language-modelling head, or without any head, are called in `transformers`.
LANGUAGE_MODEL = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$")


def check_backbone(model: str) -> Path:
    """Folder of a backbone, its files checked without building the model.

    Raises:
        InputError: no such folder, or its files cannot be those of a language model.
    """
    folder = backbone_folder(model)
    check_model_folder(folder, model)
    return folder


def check_planned_backbone(model: str) -> None:
    """The same, but a model that a rule of the workflow makes need not be there yet."""
    if not is_to_be_made(model):
        check_backbone(model)


def is_to_be_made(model: str) -> bool:
    """Whether a rule of the workflow has to make this model before a run can read it."""
    return model in MADE and not isfile(backbone_folder(model) / WEIGHTS)


def is_of_the_hub(model: str) -> bool:
    """Whether this reads like a model of the hub, `owner/name`, that is not in its cache."""
    named = "/" in model and HUB_NAME.fullmatch(model) is not None
    return named and not isdir(backbone_folder(model))


def backbone_folder(model: str) -> Path:
    """Folder of a backbone: an embedded one, a made one, a path, or a model of the hub's cache.

    The first of these that there is; the path itself where there is none. Nothing is downloaded.
    """
    embedded = {folder.name for folder in BACKBONES.iterdir() if folder.is_dir()}
    if model in embedded:
        return BACKBONES / model
    if model in MADE:
        return made_folder() / model
    if not isdir(Path(model)) and HUB_NAME.fullmatch(model):
        return _cached(model) or Path(model)
    return Path(model)


def from_anywhere(model: str) -> str:
    """What names a model in every working folder, and to other programs.

    The name of the hub for one in its cache, else the whole path of the folder.
    """
    folder = backbone_folder(model)
    of_hub = folder != Path(model) and folder.is_relative_to(hub_cache())
    return model if of_hub else str(folder.resolve())


def hub_cache() -> str:
    """Folder of the Hugging Face cache; the library is loaded where it is asked for."""
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def made_folder() -> Path:
    """Where made models are: $MAGELLAN_BACKBONES, else results/backbone in the working folder."""
    return Path(os.environ.get(MADE_IN) or MADE_IN_DEFAULT)


def _cached(model: str) -> Path | None:
    """Snapshot of a hub's model in the Hugging Face cache, that of its branch `main`."""
    cache = Path(hub_cache()) / f"models--{model.replace('/', '--')}"
    try:
        commit = (cache / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    folder = cache / "snapshots" / commit
    return folder if commit and isdir(folder) else None


def number_of_parameters(model: str) -> int:
    """Numbers in all weights of a backbone; tied ones that are stored once count once.

    model: value of `backbone.model`, checked by `check_planned_backbone`.
    """
    return MADE[model].parameters if model in MADE else number_of_weights(backbone_folder(model))


def check_model_folder(folder: Path, name: str) -> None:
    """Check that a folder can hold a language model: configuration, weights, tokenizer.

    Args:
        folder: where the files are.
        name: value of `backbone.model`, for the error.

    Raises:
        InputError: one line naming the file and what is wrong with it.
    """
    try:
        _check(folder)
    except _Unfit as unfit:
        raise InputError(
            f"backbone.model: {shown(name)} {unfit}{_remedy(name, folder)}; allowed: {ALLOWED}"
        ) from None


def _remedy(name: str, folder: Path) -> str:
    """The command that gets a model that has a name and is not there, or not whole."""
    if name in MADE:
        anew = "remove that folder, then " if isdir(folder) else ""
        return f" (in {folder}); {anew}`snakemake {MADE[name].rule}` makes it"
    if folder.is_relative_to(hub_cache()):
        return f" (in {folder}); `hf download {name}` gets what the hub has"
    if "/" in name and HUB_NAME.fullmatch(name) and not isdir(folder):
        return (
            f": neither a folder nor in the Hugging Face cache {hub_cache()}; if it is of "
            f"the hub, `hf download {name}` gets it"
        )
    return ""


def model_digest(folder: Path) -> str:
    """SHA-256 over names, sizes and contents of a model's files, in the order of their names.

    Those count that change numbers: configuration, weights, tokenizer; not a card, nor settings for
    the generation of text. Equal models have equal digests wherever they lie.

    Raises:
        InputError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        found = {folder / name for name in _weight_files(folder)}
        found |= {folder / name for name in DIGESTED if (folder / name).is_file()}
        for path in sorted(found):
            digest.update(f"{path.name} {path.stat().st_size}\n".encode(errors="surrogateescape"))
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    except _Unfit as unfit:
        raise InputError(f"backbone.model: {folder} {unfit}; allowed: {ALLOWED}") from None
    except OSError as error:
        raise InputError(
            f"backbone.model: {folder} has a file that cannot be read ({error.strerror}: "
            f"{error.filename}); allowed: {ALLOWED}"
        ) from None
    return digest.hexdigest()


class _Unfit(Exception):
    """What is wrong with a folder."""


def _check(folder: Path) -> None:
    if not isfile(folder / "config.json"):
        raise _Unfit("is missing" if not isdir(folder) else "has no config.json")
    config = _json_object(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise _Unfit(f"has model_type {shown(config.get('model_type'))} in config.json")
    classes = config.get("architectures") or []
    if not isinstance(classes, list):
        raise _Unfit(f"has architectures {shown(classes)} in config.json")
    if classes and not any(LANGUAGE_MODEL.search(str(each)) for each in classes):
        raise _Unfit(f"is {shown(classes[0])} in config.json, not a language model")
    if isfile(folder / "adapter_config.json"):
        raise _Unfit("has adapter_config.json, adapters of another model; merge them into it first")
    _check_layers(config)
    _check_weights(folder)
    _check_tokenizer(folder, config.get("vocab_size"))


def _check_layers(config: dict[str, Any]) -> None:
    for key in LAYERS:
        number = config.get(key)
        if number is not None and (type(number) is not int or not 1 <= number <= MOST_LAYERS):
            raise _Unfit(f"has {key} {shown(number)} in config.json, not 1 to {MOST_LAYERS:,}")


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except InputError as error:
        raise _Unfit(f"has a broken file, {error}") from None


def _check_weights(folder: Path) -> None:
    for name in _weight_files(folder):
        _check_header(folder / name)


def _weight_files(folder: Path) -> list[str]:
    if isfile(folder / WEIGHTS):
        names = {WEIGHTS}
    elif isfile(folder / WEIGHTS_INDEX):
        parts = _json_object(folder / WEIGHTS_INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise _Unfit(f"has a {WEIGHTS_INDEX} without weight_map")
        names = {str(part) for part in parts.values()}
    else:
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        also = f", only {pickled[0]}, a pickle, which is never loaded" if pickled else ""
        raise _Unfit(f"has no {WEIGHTS}{also}")
    return sorted(names)


def number_of_weights(folder: Path) -> int:
    """How many numbers the weights of a checked folder hold, from the headers of its files."""
    from safetensors import safe_open

    count = 0
    for name in _weight_files(folder):
        with safe_open(folder / name, framework="numpy") as file:
            names = file.keys()
            count += sum(math.prod(file.get_slice(each).get_shape()) for each in names)
    return count


def _check_header(path: Path) -> None:
    """The header is whole, and the file is as long as the header says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            empty = not file.keys()
    except (SafetensorError, OSError) as error:
        if is_out_of_memory(error):
            raise
        raise _Unfit(f"has weights {path.name} that cannot be read ({error})") from None
    if empty:
        raise _Unfit(f"has weights {path.name} without a tensor")


def _check_tokenizer(folder: Path, vocabulary: object) -> None:
    if not any(all(isfile(folder / name) for name in group) for group in TOKENIZERS):
        raise _Unfit("has no tokenizer (tokenizer.json)")
    if isfile(folder / "tokenizer_config.json"):
        _json_object(folder / "tokenizer_config.json")
    if not isfile(folder / "tokenizer.json"):
        return
    tokenizer = _json_object(folder / "tokenizer.json")
    if not isinstance(tokenizer.get("model"), dict):
        raise _Unfit("has a tokenizer.json without the key model")
    largest = _largest_id(tokenizer)
    if isinstance(vocabulary, int) and largest >= vocabulary:
        raise _Unfit(
            f"has a vocabulary of {vocabulary} (vocab_size in config.json), but its tokenizer.json "
            f"has token {largest}"
        )


def _largest_id(tokenizer: dict[str, Any]) -> int:
    """Largest token id of a tokenizer.json; -1 where it lists none."""
    words = tokenizer["model"].get("vocab") or {}
    ids = list(words.values()) if isinstance(words, dict) else [len(words) - 1]
    added = tokenizer.get("added_tokens") or []
    ids += [token.get("id") for token in added if isinstance(token, dict)]
    return max((number for number in ids if isinstance(number, int)), default=-1)
