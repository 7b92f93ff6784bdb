"""The same model in this process and in servers, with adapters that all differ and matter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from magellan.backends.lamorel.remote import READING, LamorelBackend
from magellan.backends.lamorel.serving import Served, Serving
from magellan.backends.local import LocalBackend
from magellan.competence.learned import LearnedSettings
from magellan.model.loading import load_model
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from magellan.worlds import DEFAULT_WORLD, WORLDS
from tests.backends import models
from tests.backends.models import make

AGENT = AgentConfig(
    critic_hidden=(8,), learning_rate=1e-3, actor_warmup_updates=0, joint_update=False
)
COMPETENCE = LearnedSettings(hidden=8, learning_rate=1e-3)


def served(model: str = "zoo-mini", mode: str = "per_token") -> Served:
    backbone = BackboneConfig(model=model, lora_targets="all_linear", lora_rank=4, lora_mode=mode)
    return Served(backbone, BackendConfig(), 1, WORLDS[DEFAULT_WORLD], 1)


def local(model: str = "zoo-mini") -> LocalBackend:
    """Adapters with values of their own; the delayed estimator differs from the current one."""
    backend = make("plain", model)
    backend.start_policy(AGENT, 0)
    backend.start_competence(COMPETENCE, 0)
    adapter = backend.backbone.adapter("competence")
    backend.snapshot(keep=1)
    moved = {name: values.detach() + 0.05 for name, values in adapter.items()}
    backend.backbone.load_adapter("competence", moved)
    return backend


def as_local(backend: LamorelBackend, expected: LocalBackend) -> LamorelBackend:
    """The same learners in the same state."""
    backend.start_policy(AGENT, 0)
    backend.start_competence(COMPETENCE, 0)
    backend.load_state_dict(expected.state_dict())
    return backend


class InProcess:
    """What lamorel does between the processes, in one: each end has copies of the messages."""

    def __init__(self, servings: list[Serving]) -> None:
        self.servings = servings
        self.closed = 0

    def _answers(self, contexts: list[str], message: dict[str, Any]) -> list[Any]:
        assert contexts == [str(number) for number in range(len(self.servings))]
        return [
            copy.deepcopy(serving.answer([context], **copy.deepcopy(message)))
            for serving, context in zip(self.servings, contexts, strict=True)
        ]

    def custom_module_fns(self, module_function_keys, contexts, **message):
        assert module_function_keys == [READING]
        return [{READING: answer} for answer in self._answers(contexts, message)]

    def update(self, contexts, candidates, **message):
        assert len(candidates) == len(contexts)
        return self._answers(contexts, message)

    def close(self):
        self.closed += 1


def behind(servers: int = 1, what: Served | None = None) -> LamorelBackend:
    """A backend with its servers in this process."""
    what = what or served()
    servings = [Serving(what, servers) for _ in range(servers)]
    for serving in servings:
        serving.adopt(*load_model(what.backbone.model))
    return LamorelBackend(InProcess(servings), load_model(what.backbone.model)[1], servers)


def largest_difference(tree: Any, expected: Any) -> float:
    """Largest difference of two trees of arrays and numbers."""
    if isinstance(expected, dict):
        assert tree.keys() == expected.keys()
        return max((largest_difference(tree[key], expected[key]) for key in expected), default=0.0)
    if expected is None:
        assert tree is None
        return 0.0
    return float(np.abs(np.asarray(tree) - np.asarray(expected)).max())


def updated(backend: Any, learner: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Losses, and gradients of the first step of an update, before which nothing has moved."""
    losses, gradients = models.updated(backend, learner)
    return losses, {name: gradients[name] for name in gradients if not name.startswith("actor")}


def holds_no_tensor(value: Any) -> bool:
    """Whether a tree holds no tensor: only arrays travel."""
    if isinstance(value, dict):
        return all(map(holds_no_tensor, value.values()))
    return not isinstance(value, torch.Tensor)
