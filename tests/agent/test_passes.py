"""Written-out passes give what those of `transformers` give; what frozen layers make is kept."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from magellan.core.codec import PROMPT, Codec, PackedState, stack
from magellan.fastpath import layers, reading
from magellan.fastpath.trie import Rows, build_tree
from magellan.model.backbone import Backbone
from magellan.model.files import check_backbone
from magellan.model.packing import PackedBatch
from magellan.model.scoring import candidate_features, prompt_features, score_candidates
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.agent import tiny
from tests.agent.tiny import CANDIDATES, PROMPTS, close, needs_compiler, write

THREE = {"num_hidden_layers": 3}


def llama(width, inner, heads, keys, head_dim):
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_attention_heads": heads}
    return "llama", {**sizes, "num_key_value_heads": keys, "head_dim": head_dim}


MODELS = {
    "llama": ("llama", THREE),
    "one layer": ("llama", {"num_hidden_layers": 1}),
    "odd": llama(21, 37, heads=3, keys=3, head_dim=6),
    "odd groups": llama(36, 50, heads=6, keys=2, head_dim=10),
    "one key head": llama(48, 16, heads=4, keys=1, head_dim=34),
    "zoo-mini": None,
    "zoo-reader": None,
    "t5": ("t5", {}),
    "flan": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5, last layer": ("t5", {"num_layers": 3}),
    "llama, last layer": ("llama", THREE),
}


CAUSAL = [name for name in MODELS if name[:2] not in ("t5", "fl")]
OFTEN = {"llama", "zoo-mini", "t5"}
READ = [
    pytest.param((name, passes), marks=[*marks, *[pytest.mark.slow] * (name not in OFTEN)])
    for passes, names, marks in (("torch", MODELS, []), ("compiled", CAUSAL, [needs_compiler]))
    for name in names
]


class Readers:
    """The same model and adapters, read by a written-out pass and by `transformers`."""

    def __init__(self, path, passes, layers):
        self.own = make_backbone(path, passes=passes, lora_layers=layers)
        with tiny.as_loaded():
            self.library = make_backbone(path, lora_mode="per_token", lora_layers=layers)
        self._expected = {}

    def check(self, read, *what):
        """`read(backbone)`, known as `what`, gives what the library gives."""
        if what not in self._expected:
            library = read(self.library)
            with tiny.in_float64(self.library):
                self._expected[what] = library, read(self.library)
        close(read(self.own), *self._expected[what])


@pytest.fixture(scope="module", params=READ, ids=lambda param: " ".join(param))
def readers(request, tmp_path_factory):
    name, passes = request.param
    path = tmp_path_factory.mktemp("model")
    tokenizer = AutoTokenizer.from_pretrained(check_backbone("zoo-mini"))
    torch.manual_seed(3)
    if MODELS[name] is None:
        model = AutoModelForCausalLM.from_pretrained(check_backbone(name))
    else:
        family, settings = MODELS[name]
        model = tiny.model(family, len(tokenizer), **settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # gains of one would hide a gain that is left out
                parameter.uniform_(0.5, 1.5)
    tiny.save(path, model, tokenizer)
    return Readers(path, passes, layers=1 if "last layer" in request.param[0] else 0)


def make_backbone(path, **settings):
    config = BackboneConfig(model=str(path), lora_targets="all_linear", lora_rank=3, **settings)
    return tiny.set_adapters(Backbone(config, seed=1), 0.05, seed=2)


def random_batch(seed):
    states = tiny.random_states(seed, 9, words=6, longest=8)
    return PackedBatch(*stack([*states, states[0]]))


def test_no_position_is_beyond_the_longest_prompt_with_its_action():
    """So that a model with a table of just so many positions reads a padded batch."""
    batch = random_batch(1)
    segments = batch.segment_array
    prompts = (segments == PROMPT).sum(axis=1)
    branches = [np.bincount(row[row > PROMPT]).max(initial=0) for row in segments]
    assert int(batch.positions.max()) == (prompts + branches).max() - 1


@pytest.fixture(params=[256, 4], ids=["one piece", "several pieces without oneDNN"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", request.param)
    monkeypatch.setattr(layers, "HAS_ONEDNN", layers.HAS_ONEDNN and request.param == 256)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("score", ["logit_sum", "log_prob_sum"])
@pytest.mark.parametrize("gradients", [False, True])
def test_scores_equal_the_librarys(readers, score, gradients):
    def scored(backbone):
        with torch.set_grad_enabled(gradients):
            return [score_candidates(backbone, "policy", random_batch(s), score) for s in range(3)]

    readers.check(lambda m: [each.valid for each in scored(m)], score, "valid")
    readers.check(lambda m: [each.slots.sort()[0] for each in scored(m)], score, "slots")
    readers.check(lambda m: [each.log_policy for each in scored(m)], score)
    readers.check(lambda m: [each.features[each.slots.argsort()] for each in scored(m)], "features")


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("gradients", [False, True])
def test_features_equal_the_librarys(readers, gradients):
    """Also of prompts of equal length: a short cut for one query per state, which those of random
    states seldom take."""
    states, rng = random_batch(7), np.random.default_rng(0)
    taken = states.with_one_candidate(np.zeros(len(states), np.int64))
    some = [PackedState(rng.integers(0, 9, 7), np.zeros(7, np.int8)) for _ in range(6)]
    equal = PackedBatch(*stack(some))
    with torch.set_grad_enabled(gradients):
        readers.check(lambda m: prompt_features(m, "policy", equal), "of equal length")
        readers.check(lambda m: prompt_features(m, "competence", states), "prompts")
        readers.check(lambda m: candidate_features(m, "critic_target", taken), "taken")


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("what", ["scores", "prompts", "taken"])
def test_gradients_equal_the_librarys(readers, what):
    states = random_batch(11)
    taken = states.with_one_candidate(np.zeros(len(states), np.int64))

    def gradients(backbone):
        if what == "scores":
            loss = tiny.weighted_sum(score_candidates(backbone, "policy", states, "log_prob_sum"))
        else:
            read = prompt_features if what == "prompts" else candidate_features
            features = read(backbone, "policy", taken)
            loss = (features * tiny.random_weights(features.shape)).sum()
        loss.backward()
        return tiny.gradients_of(backbone, "policy")

    readers.check(gradients, "gradients", what)


def test_one_place_has_no_gradient_to_its_query_and_key():
    """Its weight is 1 whatever the score: rounding must not make a gradient of it."""
    rows = Rows(torch.arange(3)[:, None], torch.arange(3), None)
    query, key, value = (torch.randn(3, 8, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, 2, 1, 1)
    layers.attend(query, key, value, bias, rows, rows, 2).square().sum().backward()
    assert [bool(each.grad.any()) for each in (query, key, value)] == [False, False, True]


def test_every_distinct_beginning_is_computed_once():
    """Also beside padding; prompts that begin alike may be shared."""
    states = tiny.random_states(0, 60, words=3, longest=5)
    beginnings = set()
    for number, state in enumerate(states):
        prompt, *branches = np.split(state.tokens, np.flatnonzero(np.diff(state.segments)) + 1)
        for branch in ([], *branches):
            path = [*prompt, *branch]
            lengths = range(1, len(path) + 1)
            beginnings |= {(number, n > len(prompt), *path[:n]) for n in lengths}
    tokens, segments = stack(states)
    assert len(build_tree(tokens, segments)) == len(beginnings)
    assert len(build_tree(tokens, segments, share_prompts=True)) < len(beginnings)


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
