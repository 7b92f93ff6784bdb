"""Written-out passes of known model families; other models are read through `transformers`.

They compute what the library's modules compute (tested to 1e-5), but on the distinct tokens of a
batch, without padding, and in the last layer only where a state is read.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from magellan.agent.passes.llama import LlamaPass
from magellan.agent.passes.t5 import T5Pass


def written_out_pass(model: PreTrainedModel) -> LlamaPass | T5Pass | None:
    """The pass of a model's family, or None where there is none."""
    for family in (LlamaPass, T5Pass):
        if family.fits(model):
            return family(model)
    return None


__all__ = ["LlamaPass", "T5Pass", "written_out_pass"]
