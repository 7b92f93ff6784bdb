"""Backends to compare: the same weights, read in every way that this machine can."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.bench import model_folder
from magellan.agent.replay import Batch, Episodes
from magellan.backends import Backend, make_backend
from magellan.backends.local import LocalBackend
from magellan.competence.learned import LearnedSettings
from magellan.core.codec import stack
from magellan.model import loading
from magellan.model.backbone import ADAPTERS, GPU_BUCKET, Backbone
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from magellan.worlds.little_zoo import GoalSpace
from tests.agent import tiny

PLAIN = {"backbone": {"lora_mode": "per_token"}}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
on_a_gpu = pytest.mark.gpu  # a pretended one where there is none: tests/conftest.py
WAYS = {
    "plain": PLAIN,
    "fused": PLAIN,
    "torch": {"backbone": {"passes": "torch"}},
    "compiled": {"backbone": {"passes": "compiled"}},
    "cuda": {**PLAIN, "backend": {"device": "cuda"}},
    "cuda merged": {"backend": {"device": "cuda"}},
}
MODELS = pytest.mark.parametrize("model", ["zoo-mini", "t5"])
slow_gpu = on_a_gpu, pytest.mark.slow
MARKS = {"compiled": tiny.needs_compiler, "cuda": slow_gpu, "cuda merged": slow_gpu}
MARKED = [pytest.param(name, marks=MARKS.get(name, ())) for name in WAYS]
every_way = pytest.mark.parametrize("way", MARKED)


def make(way="plain", model="zoo-mini", agent=None, four_bits=False, **backend) -> LocalBackend:
    """Both updates started; all adapters differ and matter, the same for every way of reading.

    `plain` is read by the modules as loaded.
    """
    settings = WAYS[way]
    backbone = {"model": model, "lora_targets": "all_linear", "lora_rank": 4}
    backbone |= settings.get("backbone", {}) | ({"quantization": "nf4"} if four_bits else {})
    config = BackendConfig(**{**settings.get("backend", {}), **backend})
    with tiny.as_loaded() if way == "plain" else nullcontext():
        local = make_backend(BackboneConfig(**backbone), config, seed=1)
    assert isinstance(local, LocalBackend)
    generator = torch.Generator().manual_seed(2)
    for name, suffix in itertools.product(ADAPTERS, ("lora_A", "lora_B")):
        for key, parameter in local.backbone.adapter(name).items():
            if key.endswith(suffix):
                values = torch.empty(parameter.shape).normal_(0, 0.1, generator=generator)
                with torch.no_grad():
                    parameter.copy_(values)
        local.backbone.adapter_changed(name)
    constants = {"critic_hidden": (8,), "learning_rate": 1e-3, "score": "log_prob_sum"}
    constants |= {"actor_warmup_updates": 0, "joint_update": True}
    local.start_policy(AgentConfig(**{**constants, **(agent or {})}), 0)
    local.start_competence(LearnedSettings(hidden=8, learning_rate=1e-3), 0)
    return local


@contextmanager
def undecided(model: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A model whose policy is certain of nothing, and the scores that leave it so.

    A random T5 has logits of size 8: its policy takes one action with probability 1.000 whatever
    the rest of it says. Here they are a tenth; log-probabilities of so even logits would make the
    shortest action certain.
    """
    with model_folder(model) as folder:
        if model == "t5":
            path = Path(folder) / "model.safetensors"
            weights = load_file(path)
            weights["lm_head.weight"] *= 0.1
            save_file(weights, path, metadata={"format": "pt"})
        yield folder, {"score": "logit_sum" if model == "t5" else "log_prob_sum"}


def make_as_for_a_gpu(way: str, model: str, agent=None, **backend) -> LocalBackend:
    """On the CPU, by the way that a GPU takes: `transformers`, fused attention, padded lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "attention_on", lambda device: None)
        patch.setattr(Backbone, "_choose_reader", lambda self: (None, "transformers"))
        made = make(way, model, agent, **backend)
        made.backbone._bucket = GPU_BUCKET
        return made


def some_states(backend: LocalBackend, n: int = 10):
    """States of Little-Zoo of many lengths, with one to five candidates."""
    goals = GoalSpace.draw((12, 12, 4, 2, 2), seed=0)
    prompts = [goals.prompt(3 * i % 32) for i in range(n)] + list(tiny.PROMPTS)
    candidates = [tiny.CANDIDATES[0][: 1 + i % 5] for i in range(n)] + list(tiny.CANDIDATES)
    return backend.codec.pack(prompts, candidates)


def transitions(backend: LocalBackend) -> Batch:
    """A batch in which every third state is the last of its episode."""
    tokens, segments = stack(some_states(backend))
    number = np.arange(len(tokens))
    given = {"returns": np.linspace(0, 1, len(tokens), dtype=np.float32)}
    given |= {"discounts": np.where(number % 3, 0.5, 0.0).astype(np.float32)}
    return tiny.reversed_batch(tokens, segments, actions=number % segments.max(axis=1), **given)


def packed_states(backend: LocalBackend):
    """The same states as one batch of the backbone."""
    batch = transitions(backend)
    return backend.backbone.batch(batch.tokens, batch.segments)


def prompts(backend: LocalBackend, n: int = 20):
    goals = GoalSpace.draw((12, 12, 4, 2, 2), seed=0)
    return stack(backend.codec.pack([goals.prompt(i) for i in range(n)], [()] * n))


def episodes(backend: LocalBackend) -> Episodes:
    """As many successes as failures."""
    tokens, segments = prompts(backend)
    return Episodes(tokens, segments, (np.arange(len(tokens)) % 2).astype(np.float32))


def update(backend: Backend, learner: str) -> dict[str, float] | float:
    """One update of `sac` or `competence`; returns its losses."""
    if learner == "sac":
        return backend.update_policy(transitions(backend))
    return backend.update_competence(episodes(backend))


def update_both(backend: Backend) -> list[dict[str, float] | float]:
    return [update(backend, learner) for learner in ("sac", "competence")]


def moments(state, learner: str) -> dict[str, np.ndarray]:
    """First moments of Adam after one step, a tenth of the gradient, of every optimizer."""
    optimizers = state[learner].get("optimizers") or {"": state[learner]["optimizer"]}
    return {
        f"{name}.{number}": values["exp_avg"]
        for name, optimizer in optimizers.items()
        for number, values in optimizer.items()
    }


Update = tuple[dict[str, float] | float, dict[str, np.ndarray]]
"""Losses and gradients."""


def updated(backend: LocalBackend, learner: str) -> Update:
    """One update; its arrays are of this moment."""
    losses = update(backend, learner)
    gradients = moments(backend.state_dict(), learner)
    return losses, {name: values.copy() for name, values in gradients.items()}


def references(learner: str, *model: Any, **settings: Any) -> list[Update]:
    """One update by the plain path, in float32 and in float64."""
    exact = make("plain", *model, **settings)
    library = updated(make("plain", *model, **settings), learner)
    with tiny.in_float64(exact):
        return [library, updated(exact, learner)]


def check_same_update(found: Update, references: list[Update]) -> None:
    """Losses are one array, and as large as gradients: parts of a loss may cancel."""
    *_, (losses, gradients) = references
    sizes = [
        max(np.abs(each).max() for each in tiny.arrays_of(part)) for part in (losses, gradients)
    ]

    def scaled(update: Update) -> list[Any]:
        together = np.array(tiny.arrays_of(update[0])).ravel()
        return [together * sizes[1] / sizes[0], update[1]]

    tiny.close(*map(scaled, (found, *references)))


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Values of a tree, with their paths."""
    if isinstance(state, Mapping):
        for key, inner in state.items():
            assert isinstance(key, str), name
            yield from leaves(inner, f"{name}.{key}")
    else:
        yield name, state


def check_same_state(state: Any, expected: Any) -> None:
    for (name, value), (_, wanted) in zip(leaves(state), leaves(expected), strict=True):
        np.testing.assert_array_equal(value, wanted, err_msg=name)
