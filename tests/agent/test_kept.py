"""What frozen layers make of states is computed once, and keeping it changes no number."""

import numpy as np
import pytest
import torch

from magellan.core.codec import Codec, stack
from magellan.fastpath.trie import build_tree
from magellan.model.backbone import Backbone
from magellan.model.scoring import score_candidates
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.agent.tiny import CANDIDATES, PROMPTS, write

MORE = tuple((PROMPTS[0].replace("lion", name), CANDIDATES[0]) for name in ("cow", "bear", "wolf"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    # Two query heads a key head, as SmolLM2 has three: the grouped path.
    write(path, "llama", num_hidden_layers=4, num_key_value_heads=2)
    return path


def make(folder, room=2000, layers=2):
    settings = {"lora_rank": 2, "lora_layers": layers, "lora_targets": "all_linear"}
    config = BackboneConfig(model=str(folder), passes="torch", **settings)
    return Backbone(config, seed=3, backend=BackendConfig(kept_states_mb=room))


def batch(backbone, *states):
    prompts, candidates = zip(*states, strict=True)
    return backbone.batch(*stack(Codec(backbone.tokenizer).pack(prompts, candidates)))


STATES = tuple(zip(PROMPTS, CANDIDATES, strict=True))


def scores(backbone, states):
    with torch.no_grad():
        result = score_candidates(backbone, "policy", states)
    return result.log_policy.numpy().tobytes(), result.features.numpy().tobytes()


def test_a_state_is_computed_once_and_room_changes_no_number(folder):
    """Also where states are forgotten, and computed again."""
    every = [batch(make(folder), *part) for part in (STATES, MORE, STATES, (*MORE, *STATES))]
    results = []
    for room in (2000, 0):
        backbone = make(folder, room)
        results.append([scores(backbone, states) for states in every])
        cache = backbone.fast_pass.cache
        assert (cache.computed, cache.hits) == ((5, 7) if room else (12, 0))
        score_candidates(backbone, "critic_target", every[0])  # with gradients
        assert cache.hits == (9 if room else 0)
    few = make(folder)
    few.fast_pass.cache._room = 15_000  # bytes: not all five states
    results.append([scores(few, states) for states in every])
    assert 5 < few.fast_pass.cache.computed < 12
    assert 0 < few.fast_pass.cache.bytes <= 15_000
    assert results[1] == results[0] == results[2]


def test_branches_that_hang_elsewhere_are_another_state(folder):
    """The same tokens in the same places: only what sees what tells these apart."""
    backbone = make(folder)
    first = build_tree(np.array([[1, 2, 10, 11, 12, 10, 13]]), np.array([[0, 0, 1, 1, 2, 3, 3]]))
    second = build_tree(np.array([[1, 2, 10, 11, 12, 13]]), np.array([[0, 0, 1, 1, 2, 2]]))
    assert torch.equal(first.tokens, second.tokens)
    cache = backbone.fast_pass.cache
    kept, other = cache.of(first), cache.of(second)
    assert cache.computed == 2
    assert not torch.equal(kept, other)


def test_nothing_is_kept_where_every_layer_carries_adapters(folder):
    every, all_four = (make(folder, layers=layers) for layers in (0, 4))
    assert every.fast_pass.cache is all_four.fast_pass.cache is None
    states = batch(every, *STATES)
    assert scores(every, states) == scores(all_four, states)
