"""What every backend does, on the plain path, the fast paths, and a GPU or a pretended one."""

import functools
import importlib.util
import json
import re

import numpy as np
import pytest
import torch

from benchmarks.bench import model_folder
from magellan.backends import CURRENT, DELAYED, check_backend, make_backend
from magellan.backends.machine import configure_torch
from magellan.competence.learned import LearnedSettings
from magellan.jobs.checkpoint import Checkpoints
from magellan.model.backbone import GPU_BUCKET, Backbone
from magellan.model.devices import find_device
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.training.loop import Trainer
from tests import runs
from tests.agent.tiny import close, in_float64
from tests.backends import models
from tests.backends.models import episodes, make, prompts, some_states, transitions
from tests.runs import refusal, refuses
from tests.snippets import raising

BOTH = (CURRENT, DELAYED)
JOINT = pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])


@pytest.fixture(scope="module")
def plain():
    return make("plain")


@functools.cache
def expected_update(learner, joint):
    return models.references(learner, agent={"joint_update": joint})


@pytest.mark.slow
@models.every_way
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


@models.every_way
@JOINT
def test_one_update_of_each_kind(way, joint, plain):
    backend = make(way, agent={"joint_update": joint})
    found, library = (model.competence(prompts(model)) for model in (backend, plain))
    with in_float64(plain):
        close(found, library, plain.competence(prompts(plain)))
    for learner in ("sac", "competence"):
        models.check_same_update(models.updated(backend, learner), expected_update(learner, joint))


@pytest.mark.slow
@models.every_way
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
@models.every_way
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


@models.every_way
def test_prompts_that_are_held_are_those_that_were_given(way):
    backend = make(way)
    packed = prompts(backend)
    held, other = backend.cache_prompts(packed), backend.cache_prompts(prompts(backend, 3))
    for _ in range(2):
        found, given = (backend.competence(those, BOTH) for those in (held, packed))
        np.testing.assert_array_equal(found, given)
    backend.free_prompts(held)
    assert backend.competence(other).shape == (1, 3)
    with pytest.raises(KeyError):
        backend.competence(held)


@pytest.mark.slow
@models.every_way
@JOINT
def test_a_state_holds_all_that_moves_and_no_tensor(way, joint):
    backend, copy = (make(way, agent={"joint_update": joint}) for _ in range(2))
    for _ in range(2):
        models.update_both(backend)
        backend.snapshot(keep=2)
    state = backend.state_dict()
    for name, value in models.leaves(state):
        assert isinstance(value, np.ndarray) or json.dumps(value), name
        assert not isinstance(value, np.ndarray) or value.dtype != np.float16, name
    copy.load_state_dict(state)
    for model in (backend, copy):
        models.update_both(model)
        model.snapshot(keep=2)
    held, states = prompts(backend), some_states(backend)
    np.testing.assert_array_equal(backend.competence(held, BOTH), copy.competence(held, BOTH))
    np.testing.assert_array_equal(backend.probabilities(states), copy.probabilities(states))
    models.check_same_state(backend.state_dict(), copy.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5, 11])
@JOINT
@models.MODELS
def test_micro_batches_equal_the_whole_batch(size, joint, model):
    settings = {"joint_update": joint, "gradient_clip": 0.5}
    with model_folder(model) as folder:
        parts = make("plain", folder, agent=settings, micro_batch=size)
        for learner in ("sac", "competence"):
            whole = models.references(learner, folder, agent=settings)
            models.check_same_update(models.updated(parts, learner), whole)


def test_micro_batches_bound_what_a_pass_with_gradients_reads(monkeypatch):
    """And what a pass without them reads: the bootstrap is in parts as well."""
    backend = make("plain", agent={"joint_update": False}, micro_batch=5)
    read, hidden_states = [], backend.backbone.hidden_states

    def counted(adapter, tokens, *more):
        read.append((torch.is_grad_enabled(), len(tokens)))
        return hidden_states(adapter, tokens, *more)

    monkeypatch.setattr(backend.backbone, "hidden_states", counted)
    models.update_both(backend)
    assert [size for gradients, size in read if gradients] == [5, 5, 2, 5, 5, 2, 5, 5, 5, 5]
    assert max(size for _, size in read) == 5


needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
HALF = {"dtype": "bfloat16"}
NARROW = [
    pytest.param("plain", "zoo-mini", HALF, 0.05, id="per token"),
    pytest.param("torch", "zoo-mini", HALF, 0.05, id="merged"),
    pytest.param("plain", "t5", HALF, 0.05, id="encoder-decoder"),
    pytest.param("cuda", "zoo-mini", HALF, 0.05, marks=models.needs_cuda, id="on a GPU"),
    # Weights of 64 normal numbers in 16 steps.
    *(
        pytest.param("plain", model, more | {"four_bits": True}, 0.5, marks=needs_bitsandbytes)
        for model in ("zoo-mini", "t5")
        for more in (HALF, {"dtype": "float32"})
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "model", "settings", "bound"), NARROW)
def test_fewer_bits_are_close_to_all_of_them(way, model, settings, bound):
    with model_folder(model) as folder:
        narrow, full = make(way, folder, **settings), make("plain", folder)
        assert (narrow.dtype, narrow.passes) == (settings["dtype"], "transformers")
        states, held = some_states(full), prompts(full)
        gaps = np.abs(narrow.probabilities(states) - full.probabilities(states))
        assert 0 < gaps.max() < bound
        assert np.abs(narrow.competence(held) - full.competence(held)).max() < bound
        losses, expected = (one.update_policy(transitions(one)) for one in (narrow, full))
        assert losses == pytest.approx(expected, rel=4 * bound, abs=bound)
        narrow.update_competence(episodes(narrow))
        for name, value in models.leaves(narrow.state_dict()):
            assert not isinstance(value, np.ndarray) or value.dtype in (np.float32, np.int64), name
        weights = {weight.dtype for weight in narrow.backbone._peft.parameters()}
        assert (torch.uint8 in weights) == ("four_bits" in settings)


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
    models.check_same_state(state, expected)


@models.MODELS
def test_recomputed_layers_give_the_same_numbers_to_the_last_bit(model):
    losses, gradients, saved = [], [], []
    with model_folder(model) as folder:
        for recomputed in (False, True):
            agent = {"joint_update": False}
            backend = make("plain", folder, agent, gradient_checkpointing=recomputed)
            losses.append(models.update_both(backend))
            state = backend.state_dict()
            gradients.append(models.moments(state, "sac") | models.moments(state, "competence"))
            batch, kept = models.packed_states(backend), []

            def keep(tensor, kept=kept):
                kept.append(tensor.nbytes)
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                backend.agent.probe(batch)
            saved.append(sum(kept))
    assert losses[1] == losses[0]
    for name, values in gradients[0].items():
        np.testing.assert_array_equal(gradients[1][name], values, err_msg=name)
    assert saved[1] < 0.8 * saved[0]


@models.MODELS
@pytest.mark.parametrize(
    "way",
    ["fused", pytest.param("torch", marks=pytest.mark.slow), *models.MARKED[-2:]],
)
def test_the_way_that_a_gpu_takes_gives_the_same_update(model, way):
    """Also on a CPU, which shows all of it but the GPU's own rounding."""
    with models.undecided(model) as (folder, score):
        there = (make if "cuda" in way else models.make_as_for_a_gpu)(way, folder, score)
        assert there.passes == "transformers"
        assert there.backbone._model.config._attn_implementation == "sdpa"
        assert models.packed_states(there).tokens.shape[1] % GPU_BUCKET == 0
        for learner in ("sac", "competence"):
            expected = models.references(learner, folder, score)
            models.check_same_update(models.updated(there, learner), expected)


@models.MODELS
def test_lengths_that_a_model_sees_are_multiples(model, monkeypatch):
    with model_folder(model) as folder:
        backend = models.make_as_for_a_gpu("fused", folder, micro_batch=5)
        lengths, run = [], Backbone._run

        def record_length(self, part, adapter, **inputs):
            lengths.append(inputs["input_ids"].shape[1])
            return run(self, part, adapter, **inputs)

        monkeypatch.setattr(Backbone, "_run", record_length)
        backend.probabilities(some_states(backend))
        backend.update_policy(transitions(backend))
        backend.competence(prompts(backend))
    assert len(lengths) > 5
    # A decoder that reads its start token alone is as short as that.
    assert {length % GPU_BUCKET for length in lengths if length > 1} == {0}


def test_four_bits_without_their_library_are_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config = BackboneConfig(quantization="nf4", lora_mode="per_token")
    words = "^backbone.quantization: 'nf4' needs the package bits"
    refuses(words, make_backend, config, BackendConfig())


def test_deterministic_operations_can_be_switched_off():
    try:
        configure_torch(1, deterministic=False)
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        configure_torch(1)
    assert torch.are_deterministic_algorithms_enabled()


def on_a_gpu_or_not(episodes, **backend):
    """A small run that reads its adapters per token."""
    small = {"goal_space": "40-8-4-2-2", "budget": {"episodes": episodes}}
    return runs.config(**small, backbone={"lora_mode": "per_token"}, backend=backend)


@models.needs_cuda  # a CPU repeats itself anyway
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_tables(tmp_path, dtype):
    run = on_a_gpu_or_not(40, device="cuda", dtype=dtype)
    first, second = (runs.trained(run, tmp_path / name) for name in ("first", "second"))
    assert runs.tables(first) == runs.tables(second)


@models.on_a_gpu
@pytest.mark.slow
@pytest.mark.parametrize("order", [("cuda", "cpu"), ("cpu", "cuda")], ids=["down", "up"])
def test_a_run_that_was_stopped_goes_on_on_the_other_device(tmp_path, order):
    first, second = (on_a_gpu_or_not(60, device=device) for device in order)
    stopped = Trainer(first)
    for _ in range(8):
        stopped.advance()
    (tmp_path / "checkpoints").mkdir()
    Checkpoints(tmp_path, first, "digest").save({"trainer": stopped.state_dict()})
    resumed = Trainer(second)
    resumed.load_state_dict(Checkpoints(tmp_path, second, "digest").load().state["trainer"])
    assert resumed.updates == stopped.updates > 0
    assert runs.finish(resumed).updates > stopped.updates


@models.on_a_gpu
def test_a_gpu_that_is_one_too_many_is_one_line():
    count = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"'cuda:{count}' is not allowed: PyTorch finds {count} "):
        find_device(f"cuda:{count}")


@models.on_a_gpu
def test_a_backend_that_forgets_to_move_its_tokens_is_found(monkeypatch):
    """What a pretended GPU is for: the same call passes, and fails where a move is left out."""
    backend = make("cuda")
    states = some_states(backend)
    assert len(backend.probabilities(states)) == len(states)
    monkeypatch.setattr(backend.backbone, "device", torch.device("cpu"))
    with pytest.raises(RuntimeError, match="to be on the same device"):
        backend.probabilities(states)
