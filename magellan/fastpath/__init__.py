"""Fast forward passes of Llama and T5; other models use `transformers`.

They give the results of the library's modules, up to the size of the library's own rounding, but
compute each distinct token of a batch once, without padding, and the last layer only where its
output is used. With a C++ compiler small Llamas use compiled code, tested in the same way.

Only speed is here. `magellan/model/backbone.py` alone imports this folder, by one line; without
both, all tests but those of the passes hold (`tests/test_packaging.py` looks at the line).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from magellan.core.errors import InputError
from magellan.fastpath.compiled import CompiledLlama
from magellan.fastpath.compiler import NotCompiledError, load
from magellan.fastpath.llama import LlamaPass
from magellan.fastpath.reading import FastPass
from magellan.fastpath.t5 import T5Pass

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SOURCE = Path(__file__).with_name("llama.cpp")


def fast_forward(
    model: PreTrainedModel, passes: str, adapted: int = 0, room: int = 0
) -> tuple[FastPass | None, str]:
    """The fast pass of a model, or None where its family has none, and its name for logs.

    Args:
        model: whose weights are used.
        passes: `auto`, `compiled` or `torch`, as in the configuration.
        adapted: number of layers with adapters, counted from the last; 0 is all.
        room: bytes to cache the output of the layers below those, where the pass supports it.

    Raises:
        InputError: `compiled` is not available.
    """
    reason = ""
    if passes != "torch":
        try:
            return _compiled_pass(model, required=passes == "compiled")
        except NotCompiledError as error:
            if passes == "compiled":
                raise InputError(
                    f"backbone.passes: 'compiled' is not available: {error}; allowed: auto, torch"
                ) from error
            reason = f" ({error})"
    if LlamaPass.fits(model):
        return LlamaPass(model, adapted, room), f"torch{reason}"
    if T5Pass.fits(model):
        return T5Pass(model), f"torch{reason}"
    return None, f"transformers{reason}"


def _compiled_pass(model: PreTrainedModel, required: bool) -> tuple[CompiledLlama, str]:
    if not CompiledLlama.fits(model):
        raise NotCompiledError("not a small Llama")
    threads = torch.get_num_threads()
    if threads > 1 and not required:
        raise NotCompiledError(f"it would use one of {threads} threads")
    library, compiler = load(SOURCE)
    return CompiledLlama(model, library), f"compiled ({compiler})"


__all__ = ["CompiledLlama", "FastPass", "LlamaPass", "T5Pass", "fast_forward"]
