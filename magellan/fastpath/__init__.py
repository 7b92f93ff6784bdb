"""Written-out passes of known model families; other models are read through `transformers`.

They compute what the library's modules compute (tested to 1e-5), but on the distinct tokens of a
batch, without padding, and in the last layer only where a state is read. Where there is a C++
compiler, small Llamas are read by compiled code (tested against them).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from magellan.core.errors import InputError
from magellan.fastpath.compiled import Adapted, Change, CompiledLlama
from magellan.fastpath.compiler import NotCompiledError, load
from magellan.fastpath.llama import LlamaPass
from magellan.fastpath.t5 import T5Pass

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SOURCE = Path(__file__).with_name("llama.cpp")

Reader = LlamaPass | T5Pass | CompiledLlama


def written_out_pass(
    model: PreTrainedModel, passes: str, adapted: int = 0, room: int = 0
) -> tuple[Reader | None, str]:
    """The pass of a model's family, or None where there is none, and what it is called.

    Args:
        model: whose weights are read.
        passes: `auto`, `compiled` or `torch`, as in the configuration.
        adapted: how many layers carry adapters, counted from the last; 0 is all.
        room: bytes for what the layers below those make of states, where the pass can keep it.

    Raises:
        InputError: `compiled` where that cannot be.
    """
    if passes != "torch":
        try:
            return _compiled(model, wanted=passes == "compiled")
        except NotCompiledError as error:
            if passes == "compiled":
                raise _refusal(str(error)) from error
            reason = f" ({error})"
    else:
        reason = ""
    if LlamaPass.fits(model):
        return LlamaPass(model, adapted, room), f"torch{reason}"
    if T5Pass.fits(model):
        return T5Pass(model), f"torch{reason}"
    return None, f"transformers{reason}"


def _compiled(model: PreTrainedModel, wanted: bool) -> tuple[CompiledLlama, str]:
    if not CompiledLlama.fits(model):
        raise NotCompiledError("not a small Llama")
    threads = torch.get_num_threads()
    if threads > 1 and not wanted:
        raise NotCompiledError(f"it would use one of {threads} threads")
    library, compiler = load(SOURCE)
    return CompiledLlama(model, library), f"compiled ({compiler})"


def _refusal(reason: str) -> InputError:
    return InputError(
        f"backbone.passes: 'compiled' cannot be had here: {reason}; allowed: auto, torch"
    )


__all__ = [
    "Adapted",
    "Change",
    "CompiledLlama",
    "LlamaPass",
    "Reader",
    "T5Pass",
    "written_out_pass",
]
