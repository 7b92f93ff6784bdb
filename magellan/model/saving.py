"""Files of adapters, in the format of `peft`, and of heads: arrays in, bytes out.

The arrays come from a backend's `state_dict`, so the model itself need not be loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from peft import LoraConfig
from safetensors.numpy import save

from magellan.model.files import portable_reference
from magellan.model.loading import configuration
from magellan.model.settings import BackboneConfig

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Names of `peft` for the two files of an adapter's folder."""
_PREFIX = "base_model.model."

Arrays = Mapping[str, Any]


def is_encoder_decoder(folder: Path) -> bool:
    """Whether the model in a checked folder is an encoder-decoder; reads its config.json only."""
    return bool(configuration(folder).is_encoder_decoder)


def adapter_files(
    parameters: Arrays, config: BackboneConfig, encoder_decoder: bool
) -> dict[str, bytes]:
    """Files of one adapter, by name, for `PeftModel.from_pretrained`.

    Args:
        parameters: float32 arrays or tensors by `LAYER.lora_A` (r, in) and `LAYER.lora_B` (out, r),
            as `Backbone.adapter` names them.
        config: rank, scale and model.
        encoder_decoder: whether the model is an encoder-decoder.
    """
    layers = sorted({name.rpartition(".")[0] for name in parameters})
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules=layers,
        task_type="SEQ_2_SEQ_LM" if encoder_decoder else "CAUSAL_LM",
        base_model_name_or_path=portable_reference(config.model),
        inference_mode=True,
    )
    weights = {f"{_PREFIX}{name}.weight": _array(values) for name, values in parameters.items()}
    # Sets are sorted, so that equal values give equal bytes.
    plain = {key: sorted(v) if isinstance(v, set) else v for key, v in settings.to_dict().items()}
    return {
        ADAPTER_CONFIG: (json.dumps(plain, indent=2, sort_keys=True) + "\n").encode(),
        ADAPTER_WEIGHTS: save(weights, {"format": "pt"}),
    }


def head_file(heads: Mapping[str, Arrays]) -> bytes:
    """One safetensors file of all heads, with tensors `HEAD.LAYER.weight` and `.bias`."""
    tensors = {
        f"{head}.{name}": _array(values)
        for head, parameters in heads.items()
        for name, values in parameters.items()
    }
    return save(tensors, {"format": "pt"})


def _array(values: Any) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(values), dtype=np.float32)
