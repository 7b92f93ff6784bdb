"""What every backend does, on the plain path, the fast paths, and a GPU or a pretended one."""

import json
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from benchmarks.shapes import model_folder
from magellan.backends import CURRENT, DELAYED, check_backend, make_backend
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
)

BOTH = (CURRENT, DELAYED)
JOINT = pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
LOSSES = ("critic_loss", "actor_loss", "entropy", "temperature")


@pytest.fixture(scope="module")
def plain():
    return make("plain")


def tolerance(way: str) -> float:
    """A GPU adds in another order."""
    return 1e-4 if way.startswith("cuda") else 1e-5


@every_way
def test_it_says_what_it_is(way):
    backend = make(way)
    words = {"plain": "transformers", "torch": "torch", "compiled": "compiled ("}
    assert backend.passes.startswith(words.get(way, "transformers"))
    assert backend.device.startswith("cuda (" if "cuda" in way else "cpu")
    assert backend.dtype == "float32"


@every_way
def test_an_adapter_that_follows_another_moves_alone(way):
    backend = make(way)
    bone = backend.backbone
    before = {
        name: {key: value.detach().clone() for key, value in bone.adapter(name).items()}
        for name in ("policy", "critic_target")
    }
    values = backend.values(some_states(backend))
    bone.blend_adapter("policy", "critic_target", 0.25)
    for key, value in bone.adapter("critic_target").items():
        half = before["critic_target"][key].lerp(before["policy"][key], 0.25)
        assert torch.allclose(value, half, atol=1e-7)
        assert not torch.equal(value, before["critic_target"][key])
    for key, value in bone.adapter("policy").items():
        assert torch.equal(value, before["policy"][key])
    assert np.array_equal(backend.values(some_states(backend)), values)


@every_way
def test_it_acts(way, plain):
    backend = make(way)
    states = some_states(backend)
    found = backend.probabilities(states)
    assert found.dtype == np.float64
    assert found.shape == (12, 5)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)
    for row, state in enumerate(states):
        assert (found[row] > 0).tolist() == [i < state.segments.max() for i in range(5)]
    np.testing.assert_allclose(found, plain.probabilities(states), atol=tolerance(way))


@every_way
def test_it_judges(way, plain):
    backend = make(way)
    states = some_states(backend)
    found = backend.values(states)
    assert found.dtype == np.float64
    assert ((found == 0) == (backend.probabilities(states) == 0)).all()
    np.testing.assert_allclose(found, plain.values(states), atol=tolerance(way))


@every_way
@JOINT
def test_one_update_of_the_agent(way, joint):
    backend, expected = (make(each, agent={"joint_update": joint}) for each in (way, "plain"))
    found, wanted = (each.update_policy(transitions(each)) for each in (backend, expected))
    assert found.keys() == set(LOSSES)
    assert [found[name] for name in LOSSES] == pytest.approx(
        [wanted[name] for name in LOSSES], rel=10 * tolerance(way)
    )
    states = (moments(each.state_dict(), "sac") for each in (backend, expected))
    assert largest_gap(*states) < 10 * tolerance(way)


@every_way
def test_one_update_of_the_competence(way):
    backend, expected = make(way), make("plain")
    packed = prompts(backend)
    np.testing.assert_allclose(
        backend.competence(packed), expected.competence(packed), atol=tolerance(way)
    )
    found, wanted = (each.update_competence(episodes(each)) for each in (backend, expected))
    assert found == pytest.approx(wanted, rel=10 * tolerance(way))
    states = (moments(each.state_dict(), "competence") for each in (backend, expected))
    assert largest_gap(*states) < 10 * tolerance(way)


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


@every_way
def test_starting_again_forgets_what_was_learned(way):
    backend = make(way)
    held = prompts(backend)
    adapter = {
        name: value.detach().clone()
        for name, value in backend.backbone.adapter("competence").items()
    }
    before = backend.competence(held)
    backend.update_competence(episodes(backend))
    backend.backbone.load_adapter("competence", adapter)
    backend.start_competence(backend.head.config, 0)
    np.testing.assert_allclose(backend.competence(held), before, atol=1e-6)


MICRO = pytest.mark.parametrize("size", [1, 5, 11])


@MICRO
@JOINT
@pytest.mark.parametrize("model", ["zoo-mini", "t5"])
def test_micro_batches_equal_the_whole_batch(size, joint, model):
    settings = {"joint_update": joint, "gradient_clip": 0.5}
    with model_folder(model) as folder:
        whole, parts = (
            make("plain", folder, agent=settings, micro_batch=each) for each in (0, size)
        )
        found, wanted = (each.update_policy(transitions(each)) for each in (parts, whole))
        assert found == pytest.approx(wanted, rel=1e-5)
        states = (moments(each.state_dict(), "sac") for each in (parts, whole))
        assert largest_gap(*states) < 1e-4
        found, wanted = (each.update_competence(episodes(each)) for each in (parts, whole))
        assert found == pytest.approx(wanted, rel=1e-5)
        states = (moments(each.state_dict(), "competence") for each in (parts, whole))
        assert largest_gap(*states) < 1e-4


def test_micro_batches_bound_what_a_pass_with_gradients_reads(monkeypatch):
    backend = make("plain", agent={"joint_update": False}, micro_batch=5)
    read, hidden_states = [], backend.backbone.hidden_states

    def counted(adapter, tokens, *more):
        if torch.is_grad_enabled():
            read.append(len(tokens))
        return hidden_states(adapter, tokens, *more)

    monkeypatch.setattr(backend.backbone, "hidden_states", counted)
    backend.update_policy(transitions(backend))
    assert read == [5, 5, 2, 5, 5, 2]
    backend.update_competence(episodes(backend))
    assert read[6:] == [5, 5, 5, 5]


def test_written_out_passes_take_no_micro_batches():
    """They have pieces of their own: the numbers are those of the whole batch, bit by bit."""
    whole, parts = (make("torch", micro_batch=each) for each in (0, 5))
    assert whole.update_policy(transitions(whole)) == parts.update_policy(transitions(parts))


@JOINT
def test_a_resting_actor_is_seen_in_parts_too(joint):
    settings = {"joint_update": joint, "actor_warmup_updates": 5}
    whole, parts = (make("plain", agent=settings, micro_batch=each) for each in (0, 5))
    found, wanted = (each.update_policy(transitions(each)) for each in (parts, whole))
    assert found == pytest.approx(wanted, rel=1e-5)


HALF = {
    "per token": ("plain", "zoo-mini", {}),
    "merged": ("torch", "zoo-mini", {}),
    "encoder-decoder": ("plain", "t5", {}),
    "cuda": ("cuda", "zoo-mini", {}),
}


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


def test_the_frozen_model_is_what_has_another_format():
    backbone = make("plain", dtype="bfloat16").backbone
    formats = {"lora_" in name: weight.dtype for name, weight in backbone._peft.named_parameters()}
    assert formats == {True: torch.float32, False: torch.bfloat16}


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


def test_nothing_is_held_after_the_end():
    backend = make()
    backend.hold(prompts(backend))
    backend.close()
    assert not backend.state_dict()


@pytest.mark.parametrize(
    "case",
    [
        ("plain", "zoo-mini", "float32"),
        ("torch", "zoo-mini", "bfloat16"),
        ("plain", "t5", "float32"),
    ],
    ids=["per token", "merged", "encoder-decoder"],
)
def test_every_tensor_is_made_on_the_device_of_the_model(case):
    """Stands in for a GPU: what is made without naming a device lands where nothing computes."""
    way, model, dtype = case
    with model_folder(model) as folder:
        backend = make(way, folder, agent={"joint_update": False}, dtype=dtype, micro_batch=5)
        states, held, experience = some_states(backend), prompts(backend), episodes(backend)
        batch = transitions(backend)
        with torch.device("meta"):
            for _ in range(2):
                assert np.isfinite(list(backend.update_policy(batch).values())).all()
                backend.update_competence(experience)
            backend.restore(backend.snapshot())
            number = backend.snapshot()
            assert np.isfinite(backend.competence(held, (CURRENT, DELAYED, number))).all()
            assert np.isfinite(backend.probabilities(states)).all()
            assert np.isfinite(backend.values(states)).all()
            backend.load_state_dict(backend.state_dict())
