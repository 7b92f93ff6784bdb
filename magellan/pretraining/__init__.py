"""Build the embedded models, `magellan.pretraining.build.RECIPES`, and write SmolLM2-135M.

Also, for any world, a small model with random weights and a tokenizer for its texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from magellan.core.errors import InputError
from magellan.core.files import check_writable
from magellan.core.parsing import read_json_object
from magellan.model.files import BACKBONES, WEIGHTS

RECORD = "build.json"


def read_record(folder: Path) -> dict[str, Any]:
    """How the model in a folder was made; empty where there is no valid record."""
    try:
        return read_json_object(folder / RECORD)
    except (OSError, InputError):
        return {}


def check_output(folder: Path, key: str, value: Any) -> None:
    """Raise InputError if `folder` is not writable, or has a model without this in its record."""
    check_writable(folder)
    if read_record(folder).get(key) != value and (folder / WEIGHTS).exists():
        raise InputError(
            f"--output: {folder} is not allowed: it holds another model; allowed: another folder"
        )


def write_embedded(
    name: str, folder: Path, model: Any, tokenizer: Any, recipe: Any, figures: Any
) -> None:
    """Write a new build of an embedded model: model, tokenizer, record and the committed card."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model, tokenizer)
    record = json.dumps({"recipe": recipe, "figures": figures}, indent=2)
    (folder / RECORD).write_text(record + "\n")
    (folder / "README.md").write_bytes((BACKBONES / name / "README.md").read_bytes())


def save_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write a model and a tokenizer of `transformers`, readable for others too."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # safetensors makes the file readable for its owner only; other users of a cluster need it too.
    (folder / WEIGHTS).chmod((folder / "config.json").stat().st_mode)
