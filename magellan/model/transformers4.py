"""Folders of models that `transformers` 5 has written, for `transformers` 4.

lamorel runs with 4. The weights are the same; a few keys are called otherwise.
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

NEW = int(__version__.split(".")[0]) >= 5
"""Whether `transformers` is 5 or later."""
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


@contextmanager
def readable(folder: Path, new: bool = NEW) -> Iterator[Path]:
    """A folder with this model that the installed `transformers` reads.

    With 5 it is the folder itself, with 4 a temporary one with links to the same weights.
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
        for name, translated in ((CONFIG, _config), (TOKENIZER, _tokenizer)):
            _translate(folder / name, copy / name, translated)
        yield copy


def _translate(source: Path, target: Path, translated: Any) -> None:
    if source.exists():
        values = json.loads(source.read_text(encoding="utf-8"))
        target.write_text(json.dumps(translated(values)), encoding="utf-8")


def _config(values: dict[str, Any]) -> dict[str, Any]:
    """Rotary positions stand in a mapping of their own since 5, the number format is `dtype`."""
    rotary = values.get("rope_parameters")
    if isinstance(rotary, dict):
        values.setdefault("rope_theta", rotary.get("rope_theta", 10000.0))
        if rotary.get("rope_type", "default") != "default":
            values.setdefault("rope_scaling", rotary)
    if "dtype" in values:
        values.setdefault("torch_dtype", values["dtype"])
    return values


def _tokenizer(values: dict[str, Any]) -> dict[str, Any]:
    """5 has one class for all tokenizers that are read from tokenizer.json."""
    if values.get("tokenizer_class") == "TokenizersBackend":
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    return values
