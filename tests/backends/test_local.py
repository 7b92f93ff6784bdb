"""What every backend does, on the plain path, the fast paths, and a GPU or a pretended one."""

import functools
import json
import re

import numpy as np
import pytest
import torch

from benchmarks.shapes import model_folder
from magellan.backends import CURRENT, DELAYED, check_backend, make_backend
from magellan.competence.learned import LearnedSettings
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.agent.tiny import close, in_float64
from tests.backends.models import (
    MODELS,
    check_same_state,
    check_same_update,
    episodes,
    every_way,
    leaves,
    make,
    needs_cuda,
    prompts,
    references,
    some_states,
    transitions,
    update_both,
    updated,
)
from tests.runs import refusal
from tests.snippets import raising

BOTH = (CURRENT, DELAYED)
JOINT = pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])


@pytest.fixture(scope="module")
def plain():
    return make("plain")


@functools.cache
def expected_update(learner: str, joint: bool) -> list:
    return references(learner, agent={"joint_update": joint})


@pytest.mark.slow
@every_way
def test_it_acts_and_judges(way, plain):
    backend = make(way)
    states = some_states(backend)
    policy, values = backend.probabilities(states), backend.values(states)
    assert policy.dtype == values.dtype == np.float64
    assert policy.shape == (12, 5)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, rtol=1e-6)
    for row, state in enumerate(states):
        assert (policy[row] > 0).tolist() == [i < state.segments.max() for i in range(5)]
    assert ((values == 0) == (policy == 0)).all()
    library = plain.probabilities(states), plain.values(states)
    with in_float64(plain):
        close(policy, library[0], plain.probabilities(states))
        close(values, library[1], plain.values(states))


@every_way
@JOINT
def test_one_update_of_each_kind(way, joint, plain):
    backend = make(way, agent={"joint_update": joint})
    found, library = (model.competence(prompts(model)) for model in (backend, plain))
    with in_float64(plain):
        close(found, library, plain.competence(prompts(plain)))
    for learner in ("sac", "competence"):
        check_same_update(updated(backend, learner), expected_update(learner, joint))


@pytest.mark.slow
@every_way
def test_snapshots_predict_what_was_predicted_when_they_were_taken(way):
    backend = make(way)
    held = backend.cache_prompts(prompts(backend))
    expected, exact = [], []
    for _ in range(4):
        expected.append(backend.competence(held)[0])
        with in_float64(backend):
            exact.append(backend.competence(held)[0])
        backend.snapshot(keep=3)
        backend.update_competence(episodes(backend))
    which = (2, DELAYED, 1, 0, CURRENT)
    predictions = backend.competence(held, which)
    close(list(predictions[:4]), *([each[n] for n in (3, 1, 2, 1)] for each in (expected, exact)))
    assert np.abs(predictions[4] - expected[3]).max() > 1e-5
    np.testing.assert_array_equal(backend.competence(held, (DELAYED,))[0], predictions[1])
    with pytest.raises(IndexError):
        backend.competence(held, (3,))


@pytest.mark.slow
@every_way
def test_the_model_alone_reads_as_before_it_had_adapters(way):
    """Fresh adapters change nothing; those here do, and stay as they are."""
    fresh = make_backend(BackboneConfig(model="zoo-mini"), BackendConfig())
    fresh.start_competence(LearnedSettings(), 0)
    backend = make(way)
    packed = prompts(backend)
    before = backend.competence(packed, BOTH)
    frozen = backend.representation(packed, "frozen")
    assert frozen.dtype == np.float32
    library = fresh.representation(packed)
    with in_float64(fresh):
        close(frozen, library, fresh.representation(packed))
    assert np.abs(frozen - backend.representation(packed)).max() > 0.1
    np.testing.assert_array_equal(backend.competence(packed, BOTH), before)


@every_way
def test_prompts_that_are_held_are_those_that_were_given(way):
    backend = make(way)
    packed = prompts(backend)
    held, other = backend.cache_prompts(packed), backend.cache_prompts(prompts(backend, 3))
    for _ in range(2):
        np.testing.assert_array_equal(
            backend.competence(held, BOTH), backend.competence(packed, BOTH)
        )
    backend.free_prompts(held)
    assert backend.competence(other).shape == (1, 3)
    with pytest.raises(KeyError):
        backend.competence(held)


@pytest.mark.slow
@every_way
@JOINT
def test_a_state_holds_all_that_moves_and_no_tensor(way, joint):
    backend, copy = (make(way, agent={"joint_update": joint}) for _ in range(2))
    for _ in range(2):
        update_both(backend)
        backend.snapshot(keep=2)
    state = backend.state_dict()
    for name, value in leaves(state):
        assert isinstance(value, np.ndarray) or json.dumps(value), name
        assert not isinstance(value, np.ndarray) or value.dtype != np.float16, name
    copy.load_state_dict(state)
    for model in (backend, copy):
        update_both(model)
        model.snapshot(keep=2)
    held, states = prompts(backend), some_states(backend)
    np.testing.assert_array_equal(backend.competence(held, BOTH), copy.competence(held, BOTH))
    np.testing.assert_array_equal(backend.probabilities(states), copy.probabilities(states))
    check_same_state(backend.state_dict(), copy.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5, 11])
@JOINT
@MODELS
def test_micro_batches_equal_the_whole_batch(size, joint, model):
    settings = {"joint_update": joint, "gradient_clip": 0.5}
    with model_folder(model) as folder:
        parts = make("plain", folder, agent=settings, micro_batch=size)
        for learner in ("sac", "competence"):
            whole = references(learner, folder, agent=settings)
            check_same_update(updated(parts, learner), whole)


def test_micro_batches_bound_what_a_pass_with_gradients_reads(monkeypatch):
    """And what a pass without them reads: the bootstrap is in parts as well."""
    backend = make("plain", agent={"joint_update": False}, micro_batch=5)
    read, hidden_states = [], backend.backbone.hidden_states

    def counted(adapter, tokens, *more):
        read.append((torch.is_grad_enabled(), len(tokens)))
        return hidden_states(adapter, tokens, *more)

    monkeypatch.setattr(backend.backbone, "hidden_states", counted)
    update_both(backend)
    assert [size for gradients, size in read if gradients] == [5, 5, 2, 5, 5, 2, 5, 5, 5, 5]
    assert max(size for _, size in read) == 5


HALF = {
    "per token": ("plain", "zoo-mini"),
    "merged": ("torch", "zoo-mini"),
    "encoder-decoder": ("plain", "t5"),
    "cuda": ("cuda", "zoo-mini"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=needs_cuda if name == "cuda" else ()) for name in HALF]
)
def test_bfloat16_is_close_to_float32(case):
    way, model = HALF[case]
    with model_folder(model) as folder:
        half = make(way, folder, dtype="bfloat16")
        full = make("plain", folder)
        assert half.dtype == "bfloat16"
        assert half.passes == "transformers"
        states, held = some_states(full), prompts(full)
        gaps = np.abs(half.probabilities(states) - full.probabilities(states))
        assert 0 < gaps.max() < 0.05
        assert np.abs(half.competence(held) - full.competence(held)).max() < 0.05
        losses, expected = (model.update_policy(transitions(model)) for model in (half, full))
        assert losses == pytest.approx(expected, rel=0.2, abs=0.05)
        half.update_competence(episodes(half))
        for name, value in leaves(half.state_dict()):
            assert not isinstance(value, np.ndarray) or value.dtype in (np.float32, np.int64), name


def test_a_gpu_that_is_absent_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:2"):
        settings = BackendConfig(device=device)
        line = refusal(check_backend, settings)
        assert re.match(rf"backend.device: '{device}' is not allowed: .*; allowed: ", line)
        assert refusal(make_backend, BackboneConfig(), settings) == line
    check_backend(BackendConfig(device="auto"))
    assert make("plain", device="auto").device == "cpu"


def test_initial_values_touch_no_gpu(monkeypatch):
    """They are drawn on the CPU; a GPU would be woken for nothing, and all that are visible."""
    expected = make().state_dict()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("get_rng_state", "set_rng_state", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, raising(AssertionError("a GPU was touched")))
    before = torch.get_rng_state()
    state = make().state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    check_same_state(state, expected)
