"""Folders of models written by `transformers` 5, for `transformers` 4, which lamorel needs.

The weights are the same; a few keys have other names.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import __version__

from magellan.core.errors import InputError

NEW = int(__version__.split(".")[0]) >= 5
"""Whether `transformers` is 5 or later."""
ROTARY = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
"""Keys of rotary positions, and their names for GPT-NeoX."""
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


@contextmanager
def readable(folder: Path, new: bool = NEW) -> Iterator[Path]:
    """A folder of this model that the installed `transformers` can read.

    With version 5 the folder itself, with 4 a temporary one with links to the same weights.
    """
    if new:
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for path in folder.iterdir():
            if path.name in (CONFIG, TOKENIZER):
                continue
            os.symlink(path.resolve(), copy / path.name)
        for name, translate in ((CONFIG, _translate_config), (TOKENIZER, _translate_tokenizer)):
            if (folder / name).exists():
                values = json.loads((folder / name).read_text(encoding="utf-8"))
                (copy / name).write_text(json.dumps(translate(values)), encoding="utf-8")
        yield copy


def _translate_config(values: dict[str, Any]) -> dict[str, Any]:
    """Version 5 has a mapping for rotary positions, and calls the number format `dtype`."""
    rotary = values.get("rope_parameters")
    if isinstance(rotary, dict):
        if any(isinstance(value, dict) for value in rotary.values()):
            raise InputError(
                "backbone.model: config.json has rope_parameters by kind of layer, which "
                "transformers 4 does not read; allowed: the same for all layers, or transformers 5"
            )
        old = str(values.get("model_type")).startswith("gpt_neox")
        for key, name in ROTARY.items():
            if (value := {"rope_theta": 10000.0, **rotary}.get(key)) is not None:
                values.setdefault(name if old else key, value)
        if rotary.get("rope_type", "default") != "default":
            values.setdefault("rope_scaling", rotary)
    if "dtype" in values:
        values.setdefault("torch_dtype", values["dtype"])
    return values


def _translate_tokenizer(values: dict[str, Any]) -> dict[str, Any]:
    """Version 5 has one class for all tokenizers read from tokenizer.json."""
    if values.get("tokenizer_class") == "TokenizersBackend":
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    return values
