"""What every backend does, on the plain path, the fast paths, and a GPU or a pretended one."""

import json
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from benchmarks.shapes import model_folder
from magellan.backends import CURRENT, DELAYED, check_backend, make_backend
from magellan.competence.learned import LearnedSettings
from magellan.core.errors import InputError
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.backends.models import (
    episodes,
    every_way,
    largest_gap,
    make,
    moments,
    on_a_gpu,
    prompts,
    some_states,
    transitions,
    updated,
)

BOTH = (CURRENT, DELAYED)
JOINT = pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])


@pytest.fixture(scope="module")
def plain():
    return make("plain")


def tolerance(way: str) -> float:
    """A GPU adds in another order."""
    return 1e-4 if way.startswith("cuda") else 1e-5


@pytest.mark.slow
@every_way
def test_it_acts_and_judges(way, plain):
    backend = make(way)
    states = some_states(backend)
    policy, values = backend.probabilities(states), backend.values(states)
    assert policy.dtype == values.dtype == np.float64
    assert policy.shape == (12, 5)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, atol=1e-6)
    for row, state in enumerate(states):
        assert (policy[row] > 0).tolist() == [i < state.segments.max() for i in range(5)]
    assert ((values == 0) == (policy == 0)).all()
    np.testing.assert_allclose(policy, plain.probabilities(states), atol=tolerance(way))
    np.testing.assert_allclose(values, plain.values(states), atol=tolerance(way))


@every_way
@JOINT
def test_one_update_of_each_kind(way, joint):
    backend, expected = (make(each, agent={"joint_update": joint}) for each in (way, "plain"))
    said = [each.competence(prompts(each)) for each in (backend, expected)]
    np.testing.assert_allclose(*said, atol=tolerance(way))
    for update in ("sac", "competence"):
        same_update(backend, expected, update, 10 * tolerance(way))


def same_update(found, wanted, update, rounding):
    """One update gives the same losses and the same gradients."""
    losses = [updated(each, update) for each in (found, wanted)]
    assert losses[0] == pytest.approx(losses[1], rel=rounding)
    gradients = (moments(each.state_dict(), update) for each in (found, wanted))
    assert largest_gap(*gradients) < rounding


@pytest.mark.slow
@every_way
def test_snapshots_say_what_was_said_when_they_were_taken(way):
    backend = make(way)
    held = backend.hold(prompts(backend))
    said, numbers = [], []
    for _ in range(4):
        said.append(backend.competence(held)[0])
        numbers.append(backend.snapshot())
        backend.update_competence(episodes(backend))
    assert len(set(numbers)) == 4
    backend.restore(numbers[1])
    backend.discard(numbers[0])
    asked = (numbers[3], DELAYED, numbers[2], numbers[1], CURRENT)
    found = backend.competence(held, asked)
    for row, number in zip(found, (3, 1, 2, 1), strict=False):
        np.testing.assert_allclose(row, said[number], atol=1e-6)
    assert np.abs(found[4] - said[3]).max() > 1e-5
    np.testing.assert_array_equal(backend.competence(held, (DELAYED,))[0], found[1])
    with pytest.raises(KeyError):
        backend.competence(held, (numbers[0],))


@pytest.mark.slow
@every_way
def test_the_model_alone_reads_as_before_it_had_adapters(way):
    """Fresh adapters change nothing; those here do, and stay as they are."""
    fresh = make_backend(BackboneConfig(model="zoo-mini"), BackendConfig())
    fresh.start_competence(LearnedSettings(), 0)
    backend = make(way)
    read, said = prompts(backend), backend.competence(prompts(backend), BOTH)
    alone = backend.representation(read, "frozen")
    assert alone.dtype == np.float32
    np.testing.assert_allclose(alone, fresh.representation(read), atol=10 * tolerance(way))
    assert np.abs(alone - backend.representation(read)).max() > 0.1
    np.testing.assert_array_equal(backend.competence(read, BOTH), said)


@every_way
def test_prompts_that_are_held_are_those_that_were_given(way):
    backend = make(way)
    packed = prompts(backend)
    held, other = backend.hold(packed), backend.hold(prompts(backend, 3))
    for _ in range(2):
        np.testing.assert_array_equal(
            backend.competence(held, BOTH), backend.competence(packed, BOTH)
        )
    backend.release(held)
    assert backend.competence(other).shape == (1, 3)
    with pytest.raises(KeyError):
        backend.competence(held)


def leaves(value, name=""):
    if isinstance(value, Mapping):
        for key, inner in value.items():
            assert isinstance(key, str), name
            yield from leaves(inner, f"{name}.{key}")
    else:
        yield name, value


@pytest.mark.slow
@every_way
@JOINT
def test_a_state_holds_all_that_moves_and_no_tensor(way, joint):
    backend, copy = (make(way, agent={"joint_update": joint}) for _ in range(2))
    for _ in range(2):
        backend.update_policy(transitions(backend))
        backend.update_competence(episodes(backend))
        backend.restore(backend.snapshot())
    state = backend.state_dict()
    for name, value in leaves(state):
        assert isinstance(value, np.ndarray) or json.dumps(value), name
        assert not isinstance(value, np.ndarray) or value.dtype != np.float16, name
    copy.load_state_dict(state)
    for each in (backend, copy):
        each.update_policy(transitions(each))
        each.update_competence(episodes(each))
    held = prompts(backend)
    assert backend.snapshot() == copy.snapshot()
    np.testing.assert_array_equal(backend.competence(held, BOTH), copy.competence(held, BOTH))
    states = some_states(backend)
    np.testing.assert_array_equal(backend.probabilities(states), copy.probabilities(states))
    for (name, mine), (_, other) in zip(
        leaves(backend.state_dict()), leaves(copy.state_dict()), strict=True
    ):
        np.testing.assert_array_equal(mine, other, err_msg=name)


MICRO = pytest.mark.parametrize("size", [1, 5, 11])


@pytest.mark.slow
@MICRO
@JOINT
@pytest.mark.parametrize("model", ["zoo-mini", "t5"])
def test_micro_batches_equal_the_whole_batch(size, joint, model):
    settings = {"joint_update": joint, "gradient_clip": 0.5}
    with model_folder(model) as folder:
        whole, parts = (
            make("plain", folder, agent=settings, micro_batch=each) for each in (0, size)
        )
        for update in ("sac", "competence"):
            same_update(parts, whole, update, 1e-4)


def test_micro_batches_bound_what_a_pass_with_gradients_reads(monkeypatch):
    """And what a pass without them reads: the bootstrap is in parts as well."""
    backend = make("plain", agent={"joint_update": False}, micro_batch=5)
    read, hidden_states = [], backend.backbone.hidden_states

    def counted(adapter, tokens, *more):
        read.append((torch.is_grad_enabled(), len(tokens)))
        return hidden_states(adapter, tokens, *more)

    monkeypatch.setattr(backend.backbone, "hidden_states", counted)
    backend.update_policy(transitions(backend))
    backend.update_competence(episodes(backend))
    assert [size for gradients, size in read if gradients] == [5, 5, 2, 5, 5, 2, 5, 5, 5, 5]
    assert max(size for _, size in read) == 5


HALF = {
    "per token": ("plain", "zoo-mini", {}),
    "merged": ("torch", "zoo-mini", {}),
    "encoder-decoder": ("plain", "t5", {}),
    "cuda": ("cuda", "zoo-mini", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=on_a_gpu if name == "cuda" else ()) for name in HALF]
)
def test_bfloat16_is_close_to_float32(case):
    way, model, settings = HALF[case]
    with model_folder(model) as folder:
        half = make(way, folder, dtype="bfloat16", **settings)
        full = make("plain", folder)
        assert half.dtype == "bfloat16"
        assert half.passes == "transformers"
        states, held = some_states(full), prompts(full)
        gaps = np.abs(half.probabilities(states) - full.probabilities(states))
        assert 0 < gaps.max() < 0.05
        assert np.abs(half.competence(held) - full.competence(held)).max() < 0.05
        losses, wanted = (each.update_policy(transitions(each)) for each in (half, full))
        assert losses == pytest.approx(wanted, rel=0.2, abs=0.05)
        half.update_competence(episodes(half))
        for name, value in leaves(half.state_dict()):
            assert not isinstance(value, np.ndarray) or value.dtype in (np.float32, np.int64), name


REFUSED = {
    "per token": ({"lora_mode": "per_token"}, {}, "backbone.lora_mode 'per_token'"),
    "half": ({}, {"dtype": "bfloat16"}, "backend.dtype 'bfloat16'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_compiled_passes_are_refused_where_they_cannot_read(case):
    backbone, backend, said = REFUSED[case]
    with pytest.raises(InputError, match=f"^backbone.passes: 'compiled' is not for {said}; allow"):
        make_backend(BackboneConfig(passes="compiled", **backbone), BackendConfig(**backend))


def test_a_gpu_that_is_absent_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"^backend.device: 'cuda' is not allowed: .*; allowed: "):
        check_backend(BackendConfig(device="cuda"))
    with pytest.raises(InputError, match=r"^backend.device"):
        make_backend(BackboneConfig(), BackendConfig(device="cuda"))
    with pytest.raises(InputError, match=r"^backend.device: 'cuda:2' is not allowed: .*; allowed"):
        check_backend(BackendConfig(device="cuda:2"))
    check_backend(BackendConfig(device="auto"))
    assert make("plain", device="auto").device == "cpu"


def test_initial_values_touch_no_gpu(monkeypatch):
    """They are drawn on the CPU; a GPU would be woken for nothing, and all that are visible."""
    expected = make().state_dict()

    def touched(*_):
        raise AssertionError("a GPU was touched")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("get_rng_state", "set_rng_state", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)
    before = torch.get_rng_state()
    found = make().state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    for (name, mine), (_, other) in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=name)
