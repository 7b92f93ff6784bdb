"""Adapters as `peft` keeps them, and heads, as the contents of files: arrays in, bytes out.

What goes in is a backend's `state_dict`, so that the model itself need not be loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from peft import LoraConfig
from safetensors.numpy import save

from magellan.model.files import from_anywhere
from magellan.model.loading import configuration
from magellan.model.settings import BackboneConfig

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Names of the two files of an adapter's folder, given by `peft`."""
_PREFIX = "base_model.model."

Arrays = Mapping[str, Any]


def is_encoder_decoder(folder: Path) -> bool:
    """Whether the model in a checked folder is one, such as T5; its weights are not read."""
    return bool(configuration(folder).is_encoder_decoder)


def adapter_files(
    parameters: Arrays, config: BackboneConfig, encoder_decoder: bool
) -> dict[str, bytes]:
    """Files of one adapter, by name, as `PeftModel.from_pretrained` reads them.

    Args:
        parameters: float32 arrays or tensors by `LAYER.lora_A` (r, in) and `LAYER.lora_B` (out, r),
            as `Backbone.adapter` names them.
        config: rank, scale and model.
        encoder_decoder: whether the model is one.
    """
    layers = sorted({name.rpartition(".")[0] for name in parameters})
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules=layers,
        task_type="SEQ_2_SEQ_LM" if encoder_decoder else "CAUSAL_LM",
        base_model_name_or_path=from_anywhere(config.model),
        inference_mode=True,
    )
    weights = {f"{_PREFIX}{name}.weight": _array(values) for name, values in parameters.items()}
    return {
        ADAPTER_CONFIG: _json(settings.to_dict()),
        ADAPTER_WEIGHTS: save(weights, {"format": "pt"}),
    }


def head_file(heads: Mapping[str, Arrays]) -> bytes:
    """One safetensors file with all heads; tensors are called `HEAD.LAYER.weight` and `.bias`."""
    named = {
        f"{head}.{name}": _array(values)
        for head, parameters in heads.items()
        for name, values in parameters.items()
    }
    return save(named, {"format": "pt"})


def _array(values: Any) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(values), dtype=np.float32)


def _json(values: Mapping[str, Any]) -> bytes:
    """The same bytes for the same values: sets are written in order."""
    plain = {key: sorted(v) if isinstance(v, set) else v for key, v in values.items()}
    return (json.dumps(plain, indent=2, sort_keys=True) + "\n").encode()
