"""Adapters on the last layers only: which these are, and that the model reads as it should."""

import pytest
import torch

from magellan.core.codec import Codec, stack
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.scoring import score_candidates
from magellan.model.settings import BackboneConfig
from tests.agent.tiny import CANDIDATES, PROMPTS, close, in_float64, needs_compiler, write

LAYERS = {"llama": "num_hidden_layers", "gpt2": "n_layer", "t5": "num_layers"}
WAYS = [
    ("llama", "merged", "torch"),
    pytest.param(("llama", "merged", "compiled"), marks=needs_compiler),
    ("llama", "per_token", "auto"),
    ("gpt2", "merged", "auto"),
    ("gpt2", "per_token", "auto"),
    ("t5", "merged", "torch"),
    ("t5", "per_token", "auto"),
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    paths = {}
    for family, key in LAYERS.items():
        paths[family] = tmp_path_factory.mktemp(family)
        write(paths[family], family, **{key: 3})
    return paths


def make(folders, way, layers, targets="all_linear") -> Backbone:
    model, mode, passes = way
    settings = {"lora_rank": 2, "lora_layers": layers, "lora_targets": targets, "lora_mode": mode}
    return Backbone(BackboneConfig(model=str(folders[model]), passes=passes, **settings))


def is_in_layer(name: str, number: int = 2) -> bool:
    return any(f".{word}.{number}." in name for word in ("layers", "h", "block"))


def gradients(backbone: Backbone) -> dict[str, torch.Tensor]:
    states = backbone.batch(*stack(Codec(backbone.tokenizer).pack(PROMPTS, CANDIDATES)))
    scores = score_candidates(backbone, "policy", states)
    for parameter in backbone.adapter("policy").values():
        parameter.grad = None
    finite = scores.log_policy.masked_fill(~scores.valid, 0.0)
    (finite.square().sum() + scores.features.square().sum()).backward()
    return {name: parameter.grad for name, parameter in backbone.adapter("policy").items()}


@pytest.mark.slow
@every_way
def test_it_is_the_full_model_with_nothing_learnt_below(folders, way):
    """All layers carry adapters on one side, those below the last with B = 0."""
    full, last = make(folders, way, 0), make(folders, way, 1)
    assert set(last.adapter("policy")) == set(filter(is_in_layer, full.adapter("policy")))
    generator = torch.Generator().manual_seed(1)
    for adapter in ADAPTERS:
        values = {
            name: torch.empty(parameter.shape).normal_(0, 0.1, generator=generator)
            for name, parameter in full.adapter(adapter).items()
        }
        last.load_adapter(adapter, {name: values[name] for name in last.adapter(adapter)})
        for name in values:
            if name.endswith("lora_B") and not is_in_layer(name):
                values[name].zero_()
        full.load_adapter(adapter, values)
    states = full.batch(*stack(Codec(full.tokenizer).pack(PROMPTS, CANDIDATES)))

    def read(backbone):
        with torch.no_grad():
            scores = [score_candidates(backbone, adapter, states) for adapter in ADAPTERS]
        features = [each.features[each.slots.argsort()] for each in scores]
        return [each.log_policy for each in scores], features, gradients(backbone)

    found, expected = read(last), read(full)
    with in_float64(full):
        exact = read(full)
    for *parts, names in zip(found, expected, exact, (None, None, found[2]), strict=True):
        close(*(part if names is None else {name: part[name] for name in names} for part in parts))
    assert all(exact[2][name].any() for name in found[2])


@pytest.mark.parametrize("model", LAYERS)
def test_targets_are_chosen_within_the_layers(folders, model):
    backbone = make(folders, (model, "merged", "auto"), 2, "attention_qv")
    modules = {name.rsplit(".", 2)[1] for name in backbone.adapter("policy")}
    assert modules == {"llama": {"q_proj", "v_proj"}, "t5": {"q", "v"}, "gpt2": {"c_attn"}}[model]
    for number, there in enumerate((False, True, True)):
        assert any(is_in_layer(name, number) for name in backbone.adapter("policy")) == there
