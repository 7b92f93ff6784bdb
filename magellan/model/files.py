"""Checks of a language model's files without building it: fast, and without torch.

Only safetensors and JSON are read. Weights in PyTorch's own format are pickles, and refused.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import isdir, isfile  # false also for names that no file can have
from pathlib import Path
from typing import Any

from magellan.core.errors import InputError, is_out_of_memory, shown
from magellan.core.parsing import read_json_object

BACKBONES = Path(__file__).parents[1] / "backbones"
"""Folder of the embedded models."""
EMBEDDED = tuple(sorted(folder.name for folder in BACKBONES.iterdir() if folder.is_dir()))
MADE_IN, MADE_IN_DEFAULT = "MAGELLAN_BACKBONES", "results/backbone"
"""Environment variable with the folder of models made by the workflow, and its default."""


@dataclass(frozen=True)
class Made:
    """A model that a rule of the workflow makes once, from files that it downloads.

    rule: name of the rule.
    parameters: number of parameters, known before the model is made.
    """

    rule: str
    parameters: int


BUILT_MODELS = {"smollm2-135m": Made("backbone_smollm2", 134_515_008)}
ALLOWED = (
    f"{', '.join((*EMBEDDED, *BUILT_MODELS))}, a folder with config.json, weights "
    "(model.safetensors) and tokenizer in Hugging Face format, or the name of a model in the "
    "Hugging Face cache"
)
HUB_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
PIECES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
"""Names of the files of sentencepiece."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Any one of these groups of files is a tokenizer.
TOKENIZERS = (
    (TOKENIZER,),
    *((name,) for name in PIECES),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
# Files, beside the weights, on which the results of a run depend.
DIGESTED = (
    "config.json",
    WEIGHTS_INDEX,
    *sorted({name for group in TOKENIZERS for name in group}),
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Keys of a config.json for the number of layers, all of which are built before any weights are
# checked; the library refuses other invalid sizes.
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
MOST_LAYERS = 1_000
# Names in `transformers` of classes with a language-modelling head, or without any head.
LANGUAGE_MODEL = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$")


def check_backbone(model: str) -> Path:
    """Check the files of a backbone without building the model; returns its folder.

    Raises:
        InputError: no such folder, or its files cannot be those of a language model.
    """
    folder = backbone_folder(model)
    try:
        _check_files(folder)
    except _UnfitError as error:
        raise InputError(
            f"backbone.model: {shown(model)} {error}{_remedy(model, folder)}; allowed: {ALLOWED}"
        ) from None
    return folder


def check_planned_backbone(model: str) -> None:
    """Like `check_backbone`, but a model that the workflow makes may still be missing."""
    if not is_to_be_made(model):
        check_backbone(model)


def is_to_be_made(model: str) -> bool:
    """Whether the workflow has to make this model before a run can use it."""
    return model in BUILT_MODELS and not isfile(backbone_folder(model) / WEIGHTS)


def is_of_the_hub(model: str) -> bool:
    """Whether this looks like a model of the hub, `owner/name`, that is not in its cache."""
    is_name = "/" in model and HUB_NAME.fullmatch(model) is not None
    return is_name and not isdir(backbone_folder(model))


def backbone_folder(model: str) -> Path:
    """Folder of a backbone: embedded, made by the workflow, a path, or in the hub's cache.

    The first that exists; the path itself where none does. Nothing is downloaded.
    """
    if model in EMBEDDED:
        return BACKBONES / model
    if model in BUILT_MODELS:
        return made_folder() / model
    if not isdir(Path(model)) and HUB_NAME.fullmatch(model):
        return _cached_snapshot(model) or Path(model)
    return Path(model)


def portable_reference(model: str) -> str:
    """Reference to a model that is valid in any working folder and for other programs.

    Its name on the hub for a model in the cache, else the absolute path of the folder.
    """
    folder = backbone_folder(model)
    in_cache = folder != Path(model) and folder.is_relative_to(hub_cache())
    return model if in_cache else str(folder.resolve())


def hub_cache() -> str:
    """Folder of the Hugging Face cache; imports its library on the first call."""
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def made_folder() -> Path:
    """Folder of models made by the workflow: $MAGELLAN_BACKBONES, else results/backbone."""
    return Path(os.environ.get(MADE_IN) or MADE_IN_DEFAULT)


def _cached(model: str) -> Path:
    return Path(hub_cache()) / f"models--{model.replace('/', '--')}"


def _snapshots(model: str) -> list[str]:
    """Folders of a model's snapshots in the Hugging Face cache, whatever branch they are of."""
    folder = _cached(model) / "snapshots"
    found = folder.glob("*/config.json") if isdir(folder) else ()
    return sorted(str(path.parent) for path in found)


def _cached_snapshot(model: str) -> Path | None:
    """Snapshot of a model's branch `main` in the Hugging Face cache."""
    cache = _cached(model)
    try:
        commit = (cache / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    folder = cache / "snapshots" / commit
    return folder if commit and isdir(folder) else None


def number_of_parameters(model: str) -> int:
    """Number of parameters of a backbone; tied weights that are stored once count once.

    model: value of `backbone.model`, checked by `check_planned_backbone`.
    """
    return (
        BUILT_MODELS[model].parameters
        if model in BUILT_MODELS
        else number_of_weights(backbone_folder(model))
    )


def _remedy(name: str, folder: Path) -> str:
    """Command that gets a named model that is missing or incomplete."""
    if name in BUILT_MODELS:
        first = "remove that folder, then " if isdir(folder) else ""
        return f" (in {folder}); {first}`snakemake {BUILT_MODELS[name].rule}` makes it"
    if folder.is_relative_to(hub_cache()):
        return f" (in {folder}); `hf download {name}` gets what the hub has"
    snapshots = _snapshots(name) if HUB_NAME.fullmatch(name) and not isdir(folder) else []
    if snapshots:
        more = f" (and {len(snapshots) - 3} more)" if len(snapshots) > 3 else ""
        return (
            f": the Hugging Face cache {hub_cache()} holds it without its branch main; name the "
            f"folder of a snapshot: {' or '.join(snapshots[:3])}{more}"
        )
    if "/" in name and HUB_NAME.fullmatch(name) and not isdir(folder):
        return (
            f": neither a folder nor in the Hugging Face cache {hub_cache()}; if it is of "
            f"the hub, `hf download {name}` gets it"
        )
    return ""


def model_digest(folder: Path) -> str:
    """SHA-256 over names, sizes and contents of a model's files, in the order of their names.

    Only files that change results count: configuration, weights, tokenizer; not a model card, nor
    settings of text generation. Equal models have equal digests in any folder.

    Raises:
        InputError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        paths = {folder / name for name in _weight_files(folder)}
        paths |= {folder / name for name in DIGESTED if (folder / name).is_file()}
        for path in sorted(paths):
            digest.update(f"{path.name} {path.stat().st_size}\n".encode(errors="surrogateescape"))
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)  # goes on with this one
    except _UnfitError as error:
        raise InputError(f"backbone.model: {folder} {error}; allowed: {ALLOWED}") from None
    except OSError as error:
        raise InputError(
            f"backbone.model: {folder} has a file that cannot be read ({error.strerror}: "
            f"{error.filename}); allowed: {ALLOWED}"
        ) from None
    return digest.hexdigest()


class _UnfitError(Exception):
    """What is wrong with a folder, as the end of a sentence."""


def _check_files(folder: Path) -> None:
    if not isfile(folder / "config.json"):
        raise _UnfitError("is missing" if not isdir(folder) else "has no config.json")
    config = _json_object(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise _UnfitError(f"has model_type {shown(config.get('model_type'))} in config.json")
    classes = config.get("architectures") or []
    if not isinstance(classes, list):
        raise _UnfitError(f"has architectures {shown(classes)} in config.json")
    if classes and not any(LANGUAGE_MODEL.search(str(name)) for name in classes):
        raise _UnfitError(f"is {shown(classes[0])} in config.json, not a language model")
    if isfile(folder / "adapter_config.json"):
        raise _UnfitError(
            "has adapter_config.json, adapters of another model; merge them into it first"
        )
    sections = [*_sections(config)]
    for key, number in ((key, section.get(key)) for section in sections for key in LAYERS):
        if number is not None and (type(number) is not int or not 1 <= number <= MOST_LAYERS):
            raise _UnfitError(f"has {key} {shown(number)} in config.json, not 1 to {MOST_LAYERS:,}")
    for name in _weight_files(folder):
        _check_header(folder / name)
    _check_tokenizer(folder, [section.get("vocab_size") for section in sections])


def _sections(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """config.json and what stands in it, such as the `text_config` of a model that also sees."""
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from _sections(value)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except InputError as error:
        raise _UnfitError(f"has a broken file, {error}") from None


def _weight_files(folder: Path) -> list[str]:
    if isfile(folder / WEIGHTS):
        names = {WEIGHTS}
    elif isfile(folder / WEIGHTS_INDEX):
        parts = _json_object(folder / WEIGHTS_INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise _UnfitError(f"has a {WEIGHTS_INDEX} without weight_map")
        names = {str(part) for part in parts.values()}
    else:
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        also = f", only {pickled[0]}, a pickle, which is never loaded" if pickled else ""
        raise _UnfitError(f"has no {WEIGHTS}{also}")
    return sorted(names)


def number_of_weights(folder: Path) -> int:
    """Number of weights in a checked folder, from the headers of its files."""
    from safetensors import safe_open

    count = 0
    for name in _weight_files(folder):
        with safe_open(folder / name, framework="numpy") as file:
            tensors = file.keys()
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in tensors)
    return count


def _check_header(path: Path) -> None:
    """Check that the header is complete and matches the length of the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            empty = not file.keys()
    except (SafetensorError, OSError) as error:
        if is_out_of_memory(error):
            raise
        raise _UnfitError(f"has weights {path.name} that cannot be read ({error})") from None
    if empty:
        raise _UnfitError(f"has weights {path.name} without a tensor")


def _check_tokenizer(folder: Path, vocabularies: list[Any]) -> None:
    if not any(all(isfile(folder / name) for name in group) for group in TOKENIZERS):
        raise _UnfitError("has no tokenizer (tokenizer.json)")
    if isfile(folder / "tokenizer_config.json"):
        _json_object(folder / "tokenizer_config.json")
    if not isfile(folder / TOKENIZER):
        return
    tokenizer = _json_object(folder / TOKENIZER)
    if not isinstance(tokenizer.get("model"), dict):
        raise _UnfitError("has a tokenizer.json without the key model")
    largest = _largest_id(tokenizer)
    vocabulary = max((size for size in vocabularies if isinstance(size, int)), default=None)
    if vocabulary is not None and largest >= vocabulary:
        raise _UnfitError(
            f"has a vocabulary of {vocabulary} (vocab_size in config.json), but its tokenizer.json "
            f"has token {largest}"
        )


def _largest_id(tokenizer: dict[str, Any]) -> int:
    """Largest token id of a tokenizer.json; -1 where it lists none."""
    words, added = tokenizer["model"].get("vocab"), tokenizer.get("added_tokens")
    ids = list(words.values()) if isinstance(words, dict) else []
    ids += [len(words) - 1] if isinstance(words, list) else []
    added = added if isinstance(added, list) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)]
    return max((number for number in ids if isinstance(number, int)), default=-1)


def stored_words(folder: Path) -> dict[str, int]:
    """Tokens and ids in vocab.json or vocab.txt; empty where a checked folder has neither."""
    if isfile(folder / "vocab.json"):
        return read_json_object(folder / "vocab.json")
    if not isfile(folder / "vocab.txt"):
        return {}
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    return {line: number for number, line in enumerate(lines) if line.strip()}  # as classes do
