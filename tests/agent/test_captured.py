"""Compiled passes give what the others give, also after the adapters have changed."""

import pytest
from torch._dynamo.utils import counters

from magellan.core.codec import stack
from magellan.model import captured
from magellan.model.backbone import GPU_BUCKET, Backbone
from magellan.model.packing import PackedBatch
from magellan.model.settings import BackboneConfig
from tests.agent import tiny
from tests.agent.test_fused import FLAN, read

FAMILIES = {"t5": FLAN, "llama": {"num_key_value_heads": 2}}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_pass_is_the_pass(family, tmp_path, monkeypatch):
    """Without a GPU nothing is captured: PyTorch runs the compiled passes one kernel at a time."""
    monkeypatch.setattr(captured, "HOW", {**captured.HOW, "mode": None, "backend": "aot_eager"})
    tiny.write(tmp_path, family, **FAMILIES[family])
    config = BackboneConfig(model=str(tmp_path), lora_mode="per_token", lora_rank=3)
    made = [tiny.set_adapters(Backbone(config, seed=1), 0.05, seed=2) for _ in range(2)]
    with tiny.as_loaded():
        library = tiny.set_adapters(Backbone(config, seed=1), 0.05, seed=2)
    made[0]._last_states = captured.Captured(made[0]._fused)
    batches = [
        PackedBatch(*stack(tiny.random_states(5, rows, 6, longest)), bucket=GPU_BUCKET)
        for rows, longest in ((9, 8), (40, 30))
    ]
    counters.clear()
    for step in range(3):
        for states in batches:
            found, other = (read(backbone, states) for backbone in made)
            with tiny.in_float64(library):
                exact = read(library, states)
            tiny.close(found, other, exact)
        for backbone in (*made, library):
            tiny.set_adapters(backbone, 0.05, seed=3 + step)
    passes = 2 * 2 * (2 if family == "t5" else 1)  # with gradients and without, of each batch
    assert counters["stats"]["unique_graphs"] == passes
    assert not counters["graph_break"]
