"""Compiled passes: equal to PyTorch's in whole updates, the same every time, and never a must."""

import platform
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from magellan.agent.replay import Batch
from magellan.agent.sac import SAC
from magellan.config import AgentConfig, BackboneConfig
from magellan.core.codec import Codec, stack
from magellan.core.errors import InputError
from magellan.fastpath import SOURCE, CompiledLlama, LlamaPass, compiler
from magellan.fastpath.compiler import cache_folder, load
from magellan.model.backbone import Backbone
from magellan.model.packing import PackedBatch
from magellan.model.scoring import score_candidates
from magellan.worlds.little_zoo import GoalSpace
from tests.agent.tiny import (
    CANDIDATES,
    PROMPTS,
    needs_compiler,
    reversed_batch,
    set_adapters,
    weighted_sum,
)
from tests.runs import refusal
from tests.snippets import run_program

GRADIENT = 1e-5
"""Largest gap of a gradient, per largest entry."""


def make_backbone(model="zoo-reader", passes="compiled") -> Backbone:
    config = BackboneConfig(model=model, lora_targets="all_linear", passes=passes)
    return set_adapters(Backbone(config), 0.05, seed=1)


def some_states(backbone: Backbone, n: int = 24):
    """States of Little-Zoo, of many lengths; some twice, one with a single candidate."""
    rng = np.random.default_rng(0)
    codec = Codec(backbone.tokenizer)
    goals = GoalSpace.draw((12, 12, 4, 2, 2), seed=0)
    prompts = [goals.prompt(int(goal)) for goal in rng.integers(32, size=n)] + list(PROMPTS)
    candidates = [CANDIDATES[0][: 1 + i % 5] for i in range(n)] + list(CANDIDATES)
    return stack(codec.pack(prompts, candidates))


def gradients_of(backbone: Backbone, states) -> dict[str, torch.Tensor]:
    weighted_sum(score_candidates(backbone, "policy", states, "log_prob_sum")).backward()
    gradients = {name: values.grad for name, values in backbone.adapter("policy").items()}
    assert all(gradient is not None for gradient in gradients.values())
    return gradients


def gap(tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Largest difference, per largest entry of each tensor."""
    assert tensors.keys() == expected.keys()
    return max(
        float((tensors[key] - values).abs().max() / values.abs().max().clamp(min=1e-6))
        for key, values in expected.items()
    )


def transitions(tokens, segments, discount) -> Batch:
    rng = np.random.default_rng(3)
    n = len(tokens)
    return reversed_batch(
        tokens,
        segments,
        actions=rng.integers(segments.max(axis=1)),
        returns=rng.random(n).astype(np.float32),
        discounts=np.full(n, discount, np.float32),
    )


def updated(updates: int) -> dict[str, torch.Tensor]:
    """Everything that updates move, from one state of adapters and heads."""
    backbone = make_backbone()
    config = AgentConfig(
        critic_hidden=(16,),
        learning_rate=1e-3,
        joint_update=True,
        actor_warmup_updates=0,
        score="log_prob_sum",
    )
    agent = SAC(backbone, config, seed=0)
    for _ in range(updates):
        agent.update(transitions(*some_states(backbone), discount=0.5))
    tensors = {f"policy.{k}": v.detach() for k, v in backbone.adapter("policy").items()}
    tensors |= {f"target.{k}": v.detach() for k, v in backbone.adapter("critic_target").items()}
    tensors |= {f"critic.{k}": v.detach() for k, v in agent.critic.named_parameters()}
    for number, values in agent.state_dict()["optimizers"]["joint"].items():
        tensors |= {f"{number}.{name}": value for name, value in values.items()}
    return tensors


@needs_compiler
def test_the_same_bytes_every_time_whatever_memory_held():
    results = []
    for value in (0.0, float("nan"), 1e30):
        dirt = [torch.full((n,), value) for n in (10**4, 10**5, 10**6, 4 * 10**6)]
        del dirt
        results.append(updated(updates=3))
    for other in results[1:]:
        assert all(torch.equal(other[key], value) for key, value in results[0].items())


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_seen(bad):
    backbone = make_backbone()
    for name, parameter in backbone.adapter("policy").items():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[3] = bad
            backbone.adapter_changed("policy")
            scores = score_candidates(backbone, "policy", PackedBatch(*some_states(backbone)))
            assert not torch.isfinite(scores.log_policy[scores.valid]).all(), name
            parameter.copy_(kept)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


def older_processors() -> list[str]:
    """Options for x86 processors that know less than this one may."""
    info = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not info.exists():
        return []
    newer = ["-march=haswell"] if " avx2 " in info.read_text() else []
    return ["-march=x86-64", *newer]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("option", older_processors())
@pytest.mark.usefixtures("cache")
def test_code_for_other_processors_is_right_too(option, monkeypatch):
    monkeypatch.setattr(compiler, "_native_option", lambda: option)
    backbones = make_backbone(), make_backbone(passes="torch")
    states = some_states(backbones[0])
    gradients = (gradients_of(backbone, PackedBatch(*states)) for backbone in backbones)
    assert gap(*gradients) < GRADIENT


# ---- never a must ------------------------------------------------------------------------------


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def check_fallback(reason: str) -> None:
    """`auto` takes PyTorch and says why; `compiled` is refused for the same reason."""
    backbone = make_backbone(passes="auto")
    assert isinstance(backbone.reader, LlamaPass)
    assert backbone.passes.startswith("torch (")
    assert reason in backbone.passes
    message = refusal(make_backbone)
    assert message.startswith("backbone.passes: 'compiled'")
    assert reason in message


@pytest.mark.usefixtures("cache")
def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_fallback("no C++ compiler")


def test_with_a_compiler_that_fails(cache, monkeypatch, tmp_path):
    text = '[ "$1" = --version ] && echo 1.0 && exit; echo "x.cpp:1: error: no" >&2; exit 1'
    monkeypatch.setenv("CXX", script(tmp_path / "failing", text))
    check_fallback("x.cpp:1: error: no")
    assert not list(cache.iterdir())  # nor a temporary folder


@needs_compiler
def test_where_the_cache_cannot_be_written(cache):
    cache.write_text("a file where the folder would be")
    check_fallback("Error")


@pytest.mark.slow
@needs_compiler
def test_what_is_in_the_cache_is_taken_and_mended(cache):
    load(SOURCE)
    (kept,) = cache.iterdir()
    before = kept.stat()
    load(SOURCE)
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    kept.unlink()
    kept.write_bytes(b"half a file")  # not over the file that this process has loaded
    run_program(LOAD)
    assert kept.stat().st_size == before.st_size


LOAD = (
    "from magellan.fastpath import SOURCE; from magellan.fastpath.compiler import load; "
    "print(load(SOURCE).library.llama_weights)"
)


@pytest.mark.slow
@needs_compiler
def test_jobs_that_start_together_compile_in_peace(cache):
    command = [sys.executable, "-c", LOAD]
    jobs = [subprocess.Popen(command, cwd=SOURCE.parents[2]) for _ in range(3)]
    assert [job.wait() for job in jobs] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_auto_takes_one_thread():
    assert isinstance(make_backbone(passes="auto").reader, CompiledLlama)
    assert make_backbone(passes="auto").passes.startswith("compiled (")
    torch.set_num_threads(2)
    assert isinstance(make_backbone(passes="auto").reader, LlamaPass)
    assert isinstance(make_backbone(passes="compiled").reader, CompiledLlama)


def test_large_models_and_adapters_per_token_are_not_compiled():
    backbone = make_backbone(passes="torch")
    model = backbone._plain
    assert CompiledLlama.fits(model)
    model.config.hidden_size = 2048
    assert not CompiledLlama.fits(model)
    with pytest.raises(InputError, match="per_token"):
        Backbone(BackboneConfig(passes="compiled", lora_mode="per_token"))


def test_a_cache_is_an_absolute_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/magellan-bench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/somewhere/.cache/magellan-bench")
