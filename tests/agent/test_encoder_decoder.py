"""The same scoring with an encoder-decoder, such as the paper's T5."""

import json
import shutil

import pytest
import torch

from magellan.config import resolve_run
from magellan.core.codec import Codec, stack
from magellan.model.backbone import Backbone
from magellan.model.packing import PackedBatch
from magellan.model.scoring import score_candidates
from magellan.model.settings import BackboneConfig
from magellan.training.loop import Trainer
from tests.agent.tiny import CANDIDATES, PROMPTS, as_loaded, set_adapters, write
from tests.runs import finish, refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5")
    write(path, "t5")
    return path


@pytest.mark.parametrize("start", [None, "absent"])
def test_a_decoder_without_a_first_token_is_refused_in_one_line(start, folder, tmp_path):
    model = shutil.copytree(folder, tmp_path / "t5")
    settings = json.loads((model / "config.json").read_text()) | {"decoder_start_token_id": None}
    if start == "absent":
        del settings["decoder_start_token_id"]
    (model / "config.json").write_text(json.dumps(settings))
    assert "has no decoder_start_token_id in config.json" in refusal(make_backbone, model)


def make_backbone(folder, **settings) -> Backbone:
    backbone = Backbone(BackboneConfig(model=str(folder), lora_rank=2, **settings), seed=0)
    return set_adapters(backbone, 0.1, seed=1, names=["policy"])


@pytest.mark.parametrize(("family", "times"), [("t5", 2), ("bart", 9)])
def test_a_prompt_is_projected_once_where_positions_are_relative(family, times, tmp_path):
    """Keys of the cross-attention: for two prompts, or for their nine candidates."""
    write(tmp_path, family)
    with as_loaded():  # whose projections are modules
        backbone = make_backbone(tmp_path, lora_mode="per_token")
    prompts = []
    for name, module in backbone.stacks()["decoder"].named_modules():
        if name.endswith(("EncDecAttention.k", "encoder_attn.k_proj")):
            module.register_forward_hook(lambda *call: prompts.append(len(call[-1])))
    with torch.no_grad():
        packed = Codec(backbone.tokenizer).pack(PROMPTS, CANDIDATES)
        score_candidates(backbone, "policy", PackedBatch(*stack(packed)))
    assert prompts == [times] * 2


@pytest.mark.slow
def test_a_run_with_the_papers_update_rule(folder):
    """The preset `paper` at toy size: 3-step returns, separate steps, learned temperature."""
    layer = {
        "goal_space": "20-10-5-5-5",
        "backbone": {"model": str(folder), "lora_rank": 2},
        "agent": {"num_envs": 4, "steps_per_update": 8, "batch_size": 8, "critic_hidden": [8]},
        "competence": {"batch_size": 8, "refresh": 2, "delay": 4},
        "budget": {"episodes": 40, "evaluate_every": 40, "evaluation_goals": 2, "record_every": 1},
    }
    trainer = finish(Trainer(resolve_run("paper", [layer])))
    assert trainer.updates > 11
    temperatures = [row[6] for row in trainer.record.tables["training"]]
    assert temperatures[10] == temperatures[0]  # the actor rests for 11 updates
    assert temperatures[-1] < temperatures[10]  # then the released rule only lets it fall
